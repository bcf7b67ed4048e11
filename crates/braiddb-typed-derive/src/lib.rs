//! `#[derive(TupleKey)]`: a struct as a tuple of its fields, in their order. Use it through the
//! crate `braiddb-typed`.

use proc_macro::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, Fields, parse_macro_input};

/// Maximum fields: the longest tuple that implements the traits.
const FIELDS_MAX: usize = 12;

/// Derives `TuplePack` and `TupleUnpack`, and so `TupleKey`, for a struct of 1 to 12 fields.
///
/// The struct is encoded as the tuple of its fields in their order. So keys sort by the first field,
/// then by the second, as `#[derive(Ord)]` does, and a new field at the end keeps the order.
#[proc_macro_derive(TupleKey)]
pub fn derive_tuple_key(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(input: &DeriveInput) -> Result<proc_macro2::TokenStream, Error> {
    let refuse = |reason: &str| Err(Error::new_spanned(&input.ident, format!("TupleKey {reason}")));
    let Data::Struct(data) = &input.data else { return refuse("can be derived for structs only") };
    if !input.generics.params.is_empty() {
        return refuse("cannot be derived for a struct with type or lifetime parameters");
    }
    let count = data.fields.len();
    if count == 0 || count > FIELDS_MAX {
        return refuse(&format!("needs 1 to {FIELDS_MAX} fields, and this struct has {count}"));
    }
    let name = &input.ident;
    let types: Vec<_> = data.fields.iter().map(|field| &field.ty).collect();
    let values: Vec<_> = (0..count).map(|index| format_ident!("field_{index}")).collect();
    let members: Vec<_> = data.fields.members().collect();
    let build = match &data.fields {
        Fields::Named(_) => quote!(Self { #(#members: #values),* }),
        Fields::Unnamed(_) => quote!(Self(#(#values),*)),
        Fields::Unit => unreachable!("a unit struct has no fields"),
    };
    Ok(quote! {
        impl ::braiddb_typed::tuple::TuplePack for #name {
            fn pack<W: ::std::io::Write>(
                &self,
                output: &mut W,
                depth: ::braiddb_typed::tuple::TupleDepth,
            ) -> ::std::io::Result<::braiddb_typed::tuple::VersionstampOffset> {
                ::braiddb_typed::tuple::TuplePack::pack(&(#(&self.#members,)*), output, depth)
            }
        }

        impl<'de> ::braiddb_typed::tuple::TupleUnpack<'de> for #name {
            fn unpack(
                input: &'de [u8],
                depth: ::braiddb_typed::tuple::TupleDepth,
            ) -> ::braiddb_typed::tuple::PackResult<(&'de [u8], Self)> {
                let (input, (#(#values,)*)) =
                    <(#(#types,)*) as ::braiddb_typed::tuple::TupleUnpack<'de>>::unpack(input, depth)?;
                ::std::result::Result::Ok((input, #build))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::expand;

    fn derived(source: &str) -> Result<String, String> {
        let input = syn::parse_str(source).map_err(|error| error.to_string())?;
        expand(&input).map(|tokens| tokens.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn derive_of_what_is_no_tuple_is_refused() {
        for (source, reason) in [
            ("enum Key { A, B }", "structs only"),
            ("union Key { a: u32, b: f32 }", "structs only"),
            ("struct Key;", "0"),
            ("struct Key {}", "0"),
            ("struct Key<T> { a: T }", "parameters"),
            ("struct Key<'a> { a: &'a str }", "parameters"),
            ("struct Key(A, A, A, A, A, A, A, A, A, A, A, A, A);", "13"),
        ] {
            let refused = derived(source).unwrap_err();
            assert!(refused.contains("TupleKey") && refused.contains(reason), "{source}: {refused}");
        }
        assert!(derived("struct Key { a: u32, r#type: String }").unwrap().contains("r#type"));
        assert!(derived("struct Key(A, A, A, A, A, A, A, A, A, A, A, A);").is_ok());
    }
}
