//! The trees of a database and their options, shown and changed by the command.

use crate::common;

use common::Workplace;

#[test]
fn trees_set_changes_and_shows_given_options() {
    let place = Workplace::with_database();
    place.ok("put db sessions a 1");
    place.ok("put db other a 1");
    assert_eq!(place.ok("trees db"), "other\nsessions\n");
    let shown = place.ok("trees db --set sessions --ttl 1800 --compression zstd");
    assert_eq!(shown, "sessions\tttl 1800s\tcompression zstd\n");
    assert_eq!(place.ok("trees db --set sessions --blob-threshold 100 --compression default --json"), {
        let id = place.ok("trees db --json").lines().nth(1).unwrap().split("\"id\":").nth(1).unwrap().to_owned();
        let id = id.split(',').next().unwrap();
        format!(
            "{{\"name\":\"sessions\",\"id\":{id},\"multi\":false,\"compression\":null,\"blob_threshold\":100,\"ttl_us\":1800000000,\"codec\":null}}\n"
        )
    });
    assert_eq!(place.ok("trees db"), "other\nsessions\tttl 1800s\tblob threshold 100\n");
    assert_eq!(place.ok("trees db --set sessions --ttl none --blob-threshold default"), "sessions\n");
    assert_eq!(place.ok("trees db --set sessions --codec tuple/json"), "sessions\tcodec tuple/json\n");
    assert_eq!(place.ok("trees db --set sessions --ttl 5"), "sessions\tcodec tuple/json\tttl 5s\n");
    for other in ["none", "tuple/msgpack"] {
        assert!(place.fails(2, &format!("trees db --set sessions --codec {other}")).contains("tuple/"));
    }
    assert_eq!(place.ok("trees db --set sessions --ttl none --codec tuple/json"), "sessions\tcodec tuple/json\n");
}

#[test]
fn trees_set_with_invalid_option_is_refused_and_changes_nothing() {
    let place = Workplace::with_database();
    place.ok("put db t a 1");
    assert!(place.fails(2, "trees db --set t").contains("--ttl"));
    assert!(place.fails(2, "trees db --ttl 5").contains("--set"));
    assert!(place.fails(2, "trees db --set t --ttl soon").contains("give a number of seconds"));
    assert!(place.fails(2, "trees db --set t --ttl 0").contains("at least 1"));
    assert!(place.fails(2, "trees db --set t --codec json").contains("tuple/json"));
    assert!(place.fails(2, "trees db --set t --compression brotli").contains("zstd"));
    assert!(place.fails(1, "trees db --set missing --ttl 5").contains("missing"));
    assert_eq!(place.ok("trees db"), "t\n");
}
