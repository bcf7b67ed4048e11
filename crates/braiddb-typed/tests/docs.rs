//! Compiles and runs the example of docs/guide/typed.md; `cargo test --doc` runs the README's.

/// The example; the same lines as in the guide.
fn example(db: braiddb::Db) -> Result<(), Box<dyn std::error::Error>> {
    // Guide begins.
    use braiddb_typed::{Timestamp, TupleKey, TypedTree};
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, TupleKey)]
    struct OrderKey {
        customer: u64,
        placed: Timestamp,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Order {
        number: String,
        cents: u64,
        tags: Vec<String>,
        #[serde(default)] // added later: older records have none
        note: Option<String>,
    }

    let orders: TypedTree<OrderKey, Order> = TypedTree::builder(&db, "orders")
        .unique_index("number", |order: &Order| order.number.clone())
        .index("cents", |order: &Order| order.cents)
        .index_many("tags", |order: &Order| order.tags.clone())
        .open()?;

    let key = |customer, placed| OrderKey { customer, placed: Timestamp(placed) };
    let order = |number: &str, cents, tag: &str| Order {
        number: number.to_owned(),
        cents,
        tags: vec![tag.to_owned()],
        note: None,
    };
    orders.put(&key(7, 1_000), &order("A-1", 1_250, "gift"))?;
    orders.put(&key(7, 2_000), &order("A-2", 300, "express"))?;
    orders.put(&key(8, 1_500), &order("B-1", 9_900, "gift"))?;

    // All orders of a customer, newest first.
    let (newest, _) = orders.prefix(&(7_u64,)).next_back().unwrap()?;
    assert_eq!(newest.placed, Timestamp(2_000));

    // Look-ups by index return records in the order of the index.
    assert_eq!(orders.get_by("number", &"B-1")?.unwrap().0.customer, 8);
    let cheap: Vec<u64> = orders
        .index_range("cents", ..=2_000_u64)
        .map(|record| Ok(record?.1.cents))
        .collect::<Result<_, braiddb_typed::Error>>()?;
    assert_eq!(cheap, [300, 1_250]);
    assert_eq!(orders.by_index("tags", &"gift").count(), 2);

    // A duplicate in a unique index is refused, and nothing is written.
    assert!(orders.put(&key(9, 0), &order("A-1", 1, "gift")).unwrap_err().is_not_unique());

    // Several trees in one commit; conflicts repeat the closure.
    let totals: TypedTree<u64, u64> = TypedTree::open(&db, "totals")?;
    db.update(|tx| {
        let (orders, totals) = (orders.in_tx(tx), totals.in_tx(tx));
        orders.put(&key(9, 3_000), &order("C-1", 500, "gift"))?;
        let total = totals.get(&9)?.unwrap_or(0);
        totals.put(&9, &(total + 500))?;
        Ok(())
    })?;

    // A snapshot keeps reading the state of its creation.
    let snapshot = db.snapshot();
    orders.remove(&key(8, 1_500))?;
    assert_eq!(orders.at(&snapshot).len()?, 4);
    assert_eq!(orders.len()?, 3);
    // Guide ends.
    Ok(())
}

/// The lines between two markers, without their common indentation.
fn lines_between<'a>(text: &'a str, begin: &str, end: &str, indentation: &str) -> Vec<&'a str> {
    let lines = text.lines().skip_while(|line| line.trim() != begin).skip(1).take_while(|line| line.trim() != end);
    lines.map(|line| line.strip_prefix(indentation).unwrap_or(line)).collect()
}

#[test]
fn guide_example_runs() {
    let shown = lines_between(include_str!("../../../docs/guide/typed.md"), "```rust", "```", "");
    assert!(shown.len() > 50, "the guide has no example");
    assert_eq!(shown, lines_between(include_str!("docs.rs"), "// Guide begins.", "// Guide ends.", "    "));
    example(braiddb::Db::in_memory().unwrap()).unwrap();
}
