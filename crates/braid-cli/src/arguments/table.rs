//! Arguments of `import` for tables.

use clap::Args;

use crate::import::{Delimiter, TableOptions, TypedField};

/// How rows are read.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Tables (csv, tsv)")]
pub struct TableArguments {
    /// What separates fields: one ASCII character, or `tab` [default: a comma for csv, a tab for
    /// tsv]
    #[arg(long, value_name = "CHAR")]
    pub delimiter: Option<Delimiter>,
    /// The first row is a record; fields are named c1, c2 and so on, unless --fields is given
    #[arg(long)]
    pub no_header: bool,
    /// The names of all columns, in the place of those in the first row
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    pub fields: Vec<String>,
    /// Fields that are not text: int, float, bool or json; an empty one of these is null [default:
    /// all are text]
    #[arg(long, value_name = "FIELD:TYPE,..", value_delimiter = ',')]
    pub types: Vec<TypedField>,
}

impl TableArguments {
    /// As options of an import.
    pub fn options(&self) -> TableOptions {
        TableOptions {
            delimiter: self.delimiter,
            no_header: self.no_header,
            fields: self.fields.clone(),
            types: self.types.clone(),
        }
    }
}
