//! Arguments of `import` for tables.

use clap::Args;

use crate::import::{Delimiter, TableOptions, TypedField};

/// Options to read rows.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Tables (csv, tsv)")]
pub struct TableArguments {
    /// Field separator: one ASCII character, or `tab` [default: comma for csv, tab for tsv]
    #[arg(long, value_name = "CHAR")]
    pub delimiter: Option<Delimiter>,
    /// The first row is a record; columns are named c1, c2 and so on, unless --fields is given
    #[arg(long)]
    pub no_header: bool,
    /// Names of all columns; replace those in the first row
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    pub fields: Vec<String>,
    /// Types of fields: int, float, bool or json; an empty field of these types is null [default:
    /// text]
    #[arg(long, value_name = "FIELD:TYPE,..", value_delimiter = ',')]
    pub types: Vec<TypedField>,
}

impl TableArguments {
    pub fn options(&self) -> TableOptions {
        TableOptions {
            delimiter: self.delimiter,
            no_header: self.no_header,
            fields: self.fields.clone(),
            types: self.types.clone(),
        }
    }
}
