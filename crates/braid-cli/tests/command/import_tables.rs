//! Delimiters, headers and types of tables; no guesses.

use crate::common;

use common::Workplace;

fn place() -> Workplace {
    let place = Workplace::new();
    place.ok("create db");
    place
}

/// Semicolons gave one column, with code 0.
#[test]
fn unexpected_delimiter_is_refused_with_advice_and_accepted_as_option() {
    for (text, delimiter, name) in
        [("id;n\n1;a,b\n", ";", "semicolons"), ("id\tn\n1\ta,b\n", "tab", "tabs"), ("id|n\n1|a,b\n", "|", "bars")]
    {
        let place = place();
        place.write("in.csv", text);
        let message = place.fails(5, "import db in.csv --tree t");
        assert!(message.contains("0 commas") && message.contains(&format!("1 {name}")), "{message}");
        assert!(message.contains("--delimiter"), "{message}");
        assert_eq!(place.ok("trees db"), "");
        place.ok(&format!("import db in.csv --tree t --key id --delimiter {delimiter}"));
        assert_eq!(place.ok("scan db t"), "1\t{\"id\":\"1\",\"n\":\"a,b\"}\n");
    }
    let place = place();
    place.write("euro.csv", "\"id\";price, net\n1;2,50\n");
    place.fails(5, "import db euro.csv --tree t");
    place.write("in.tsv", "id,n\n1,a\n");
    let message = place.fails(5, "import db in.tsv --tree t");
    assert!(message.contains("--format csv --delimiter ,") && message.contains("else --delimiter tab"), "{message}");
    place.write("in.csv", "a;b\n1\n");
    place.ok("import db in.csv --tree t --delimiter ,");
    assert_eq!(place.ok("scan db t"), "0\t{\"a;b\":\"1\"}\n");
    place.write("sep.csv", "sep=;\nid;n\n1;a\n");
    for options in ["", " --delimiter ;", " --no-header --delimiter ;"] {
        let message = place.fails(5, &format!("import db sep.csv --tree sep{options}"));
        assert!(message.contains("add --delimiter ';', and remove that line"), "{message}");
    }
    place.write("quoted.csv", "\"a;b;c\",n\n1,2\n");
    place.ok("import db quoted.csv --tree quoted");
}

#[test]
fn invalid_delimiter_is_refused() {
    let place = place();
    place.write("in.csv", "id,n\n1,a\n");
    place.write("in.jsonl", "{}\n");
    for delimiter in ["\"", "ab", "é", ""] {
        let arguments = ["import", "db", "in.csv", "--tree", "t", "--delimiter", delimiter];
        assert_eq!(place.run_with(&arguments, b"").code, 2, "{delimiter}");
    }
    for option in ["--delimiter ;", "--no-header", "--fields a,b", "--types a:int"] {
        let message = place.fails(2, &format!("import db in.jsonl --tree t {option}"));
        assert!(message.contains("are only for csv and tsv"), "{message}");
    }
    place.fails(2, "import db in.csv --tree t --fields a,a");
    place.fails(2, "import db in.csv --tree t --fields a,,b");
    place.fails(2, "import db in.csv --tree t --types a:int,a:float");
    assert!(place.fails(2, "import db in.csv --tree t --types id:integer").contains("is not a type"));
}

#[test]
fn no_header_imports_first_row_as_record() {
    let place = place();
    place.write("in.csv", "1,a\n2,\"b\nc\"\n3\n");
    let report = place.ok("import db in.csv --tree t --key c1 --no-header");
    assert!(report.contains("3 records") && report.contains("record 3, line 4, byte 12"), "{report}");
    assert_eq!(place.ok("get db t 1"), "{\"c1\":\"1\",\"c2\":\"a\"}\n");
    place.ok("import db in.csv --tree named --key id --no-header --fields id,name");
    assert_eq!(place.ok("scan db named").lines().next(), Some("1\t{\"id\":\"1\",\"name\":\"a\"}"));
    place.ok("import db in.csv --tree other --key id --fields id,name");
    assert_eq!(place.ok("scan db other"), "2\t{\"id\":\"2\",\"name\":\"b\\\\nc\"}\n");
    let message = place.fails(5, "import db in.csv --tree t --key id --fields id,name,more");
    assert!(message.contains("names 3 columns, but the first row has 2"), "{message}");
}

#[test]
fn resume_with_other_table_options_is_refused() {
    let place = place();
    place.write("in.csv", "1;a\n2\n3;c\n");
    let rest = "--tree t --key c1:u64 --types c1:int --delimiter ; --no-header";
    place.fails(5, &format!("import db in.csv {rest} --on-error stop"));
    let message = place.fails(5, "import db in.csv --tree t --key c1:u64 --delimiter ; --no-header --resume");
    assert!(message.contains("--types"), "{message}");
    place.ok(&format!("import db in.csv {rest} --resume"));
    assert_eq!(place.ok("scan db t"), "1\t{\"c1\":1,\"c2\":\"a\"}\n3\t{\"c1\":3,\"c2\":\"c\"}\n");
}

/// Commas at the end of the header were refused as two columns with the same name.
#[test]
fn empty_trailing_columns_without_names_are_left_out() {
    let place = place();
    place.write("in.csv", "id,n,,\n1,a,,\n2,b\n3,c,,x\n4,d,\n");
    let report = place.ok("import db in.csv --tree t --key id");
    assert!(report.contains("1 wrong-columns"), "{report}");
    assert!(report.contains("record 3, line 4, byte 17: column 4 has a value but no name"), "{report}");
    assert_eq!(
        place.ok("scan db t"),
        "1\t{\"id\":\"1\",\"n\":\"a\"}\n2\t{\"id\":\"2\",\"n\":\"b\"}\n4\t{\"id\":\"4\",\"n\":\"d\"}\n"
    );
    place.write("inner.csv", ",,a\n1,2,3\n");
    let message = place.fails(5, "import db inner.csv --tree u");
    assert!(message.contains("two columns of the input have no name: give --fields"), "{message}");
    place.ok("import db inner.csv --tree u --fields x,y,z");
    assert_eq!(place.ok("scan db u"), "0\t{\"x\":\"1\",\"y\":\"2\",\"z\":\"3\"}\n");
    place.write("none.csv", ",,\n1,2,3\n");
    assert!(place.fails(5, "import db none.csv --tree v").contains("names no column"));
}

#[test]
fn incomplete_header_is_refused() {
    let place = place();
    place.write("in.csv", "id,\"n\n1,a\n2,b\n3,c\n");
    let message = place.fails(5, "import db in.csv --tree t");
    assert!(message.contains("first row of the input cannot be read: the quote in line 1"), "{message}");
}

#[test]
fn fields_without_type_are_text() {
    let place = place();
    place.write("in.csv", "id,n,f,b,j,t\n1,007,1.50,True,\"{\"\"a\"\":1}\",007\n2,,,,,\n3,x,1,1,1,1\n");
    let report = place.ok("import db in.csv --tree t --key id --types n:int,f:float,b:bool --types j:json");
    assert!(report.contains("1 bad-type (skipped)"), "{report}");
    assert!(report.contains("record 3, line 4, byte 52: n: \"x\" is not int"), "{report}");
    let expected = "{\"id\":\"1\",\"n\":7,\"f\":1.50,\"b\":true,\"j\":{\"a\":1},\"t\":\"007\"}\n";
    assert_eq!(place.ok("get db t 1"), expected);
    assert_eq!(place.ok("get db t 2"), "{\"id\":\"2\",\"n\":null,\"f\":null,\"b\":null,\"j\":null,\"t\":\"\"}\n");
    place.ok("import db in.csv --tree plain --key id");
    assert!(place.ok("get db plain 1").contains("\"n\":\"007\",\"f\":\"1.50\""));
    let message = place.fails(5, "import db in.csv --tree u --key id --types m:int");
    assert!(message.contains("has no column \"m\"; its columns are id, n, f, b, j, t"), "{message}");
}
