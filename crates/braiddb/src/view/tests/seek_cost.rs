//! Costs of seeks and scans over a view of eight runs, folded in one after another.

use super::*;

const ROWS: usize = 16_000;
const RUNS: usize = 8;
const LATEST: SequenceNumber = u64::MAX >> 2;

struct Folded {
    blocks: Arc<BlockCache>,
    runs: Arc<[Arc<Run>]>,
    view: Arc<View>,
    keys: Vec<Vec<u8>>,
}

fn folded(first: usize) -> Folded {
    let mut world = World::new(600);
    let of_views = TableContext::new(Arc::clone(&world.ctx.vfs), BlockCache::new(16 << 20));
    let mut keys = Vec::new();
    let mut view = None;
    for run in 0..RUNS {
        let count = if run == 0 { first } else { (ROWS - first) / (RUNS - 1) };
        let mut of_run: Vec<_> = (0..count).map(|_| Shape::Hashed.key(&mut world.random)).collect();
        of_run.sort();
        let (path, number) = world.new_file("run");
        let options =
            RunOptions { compression: Compression::None, key_blocks: KeyBlocks::Never, ..RunOptions::default() };
        let mut writer = SortedRunWriter::create(&world.ctx, &path, number, number, &options).unwrap();
        for key in &of_run {
            writer.add(EntryRef { key, sequence: number, kind: EntryKind::Value, value: &[7; 120] }).unwrap();
        }
        let meta = writer.finish().unwrap();
        world.runs.push(Run::open(&world.ctx, &path, &meta).unwrap());
        keys.extend(of_run);
        view = Some(match view {
            None => View::open_embedded(&of_views, &world.runs[0]).unwrap(),
            Some(older) => {
                let (path, number) = world.new_file("view");
                let (old, new) = world.runs.split_at(run);
                let (meta, _) =
                    fold_view(&of_views, &path, number, number, &older, old, new, &Bounds::default()).unwrap();
                View::open(&of_views, &path, &meta).unwrap()
            }
        });
    }
    keys.sort();
    Folded { blocks: Arc::clone(&world.ctx.cache), runs: world.runs.into(), view: view.unwrap(), keys }
}

impl Folded {
    fn cursor(&self) -> ViewCursor {
        ViewCursor::new(Arc::clone(&self.view), Arc::clone(&self.runs), LATEST)
    }

    fn seek(&self, key: &[u8], expected: Option<&Vec<u8>>) -> (u64, u64) {
        self.blocks.set_capacity(0);
        self.blocks.set_capacity(16 << 20);
        let mut cursor = self.cursor();
        let (compared, missed) = (key_comparisons(), self.blocks.stats().misses);
        cursor.seek(key).unwrap();
        assert_eq!(cursor.valid().then(|| cursor.key()), expected.map(|key| &key[..]));
        (key_comparisons() - compared, self.blocks.stats().misses - missed)
    }
}

#[test]
fn seek_in_folded_view_compares_one_key_and_reads_one_block() {
    for first in [ROWS / RUNS, ROWS * 9 / 10] {
        let folded = folded(first);
        for key in folded.keys.iter().step_by(37) {
            assert_eq!(folded.seek(key, Some(key)), (1, 1), "{key:?}");
        }
        for (at, key) in folded.keys.iter().enumerate().step_by(37) {
            let between = [&key[..], b"x"].concat();
            let (compared, blocks) = folded.seek(&between, folded.keys.get(at + 1));
            assert!(compared <= 1 && blocks <= 2, "{between:?}: {compared} keys, {blocks} blocks");
        }
    }
}

#[test]
fn scan_of_folded_view_compares_no_keys() {
    for first in [ROWS / RUNS, ROWS * 9 / 10] {
        let folded = folded(first);
        let compared = key_comparisons();
        let mut cursor = folded.cursor();
        let mut rows = 0;
        cursor.seek_first().unwrap();
        while cursor.valid() {
            cursor.next().unwrap();
            rows += 1;
        }
        cursor.seek_last().unwrap();
        while cursor.valid() {
            cursor.prev().unwrap();
            rows += 1;
        }
        assert_eq!((rows, key_comparisons()), (2 * folded.keys.len(), compared));
    }
}
