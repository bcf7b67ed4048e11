/// Layers forgot methods with a default implementation.
#[test]
fn layers_forward_every_method() {
    let calls = |text: &'static str, head: &str| -> Vec<&'static str> {
        let body = text.split(head).nth(1).unwrap().split("\n}\n").next().unwrap();
        let names = body.lines().filter_map(|line| line.strip_prefix("    fn ")?.split('(').next());
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        names
    };
    let (traits, layers) = (include_str!("../../vfs.rs"), include_str!("../layer.rs"));
    for (name, by_others) in [("Vfs", &[][..]), ("File", &["is_empty", "read_exact_at"])] {
        let mut all = calls(traits, &format!("pub trait {name}: "));
        assert!(all.len() > 10, "{all:?}");
        all.retain(|call| !by_others.contains(call));
        assert_eq!(calls(layers, &format!("> {name} for L {{")), all);
        let mut passed_on = calls(layers, &format!("pub trait {name}Layer: "));
        passed_on.retain(|call| *call != "inner");
        assert_eq!(passed_on, all);
    }
}
