use super::*;
use crate::platform::{MemVfs, SystemVfs, os::tests::conformance};

const DIR: &str = "/d";

fn all(_: &Path) -> bool {
    true
}

fn path(number: usize) -> PathBuf {
    Path::new(DIR).join(format!("{number}.run"))
}

fn bytes(number: usize) -> Vec<u8> {
    (0..3000).map(|at| (at * 7 + number * 131) as u8).collect()
}

/// `max`: the budget.
fn world(files: usize, max: usize) -> (Arc<MemVfs>, Arc<OpenFiles>, BudgetedVfs) {
    let inner = Arc::new(MemVfs::new());
    inner.create_dir_all(Path::new(DIR)).unwrap();
    for number in 0..files {
        inner.open(&path(number), OpenMode::CreateNew).unwrap().write_at(&bytes(number), 0).unwrap();
    }
    let budget = OpenFiles::new(max);
    let vfs = BudgetedVfs::new(Arc::clone(&inner) as _, Arc::clone(&budget), all, false);
    (inner, budget, vfs)
}

fn check(file: &dyn File, number: usize) {
    let mut found = vec![0; 3000];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == bytes(number), "file {number}");
}

#[test]
fn budgeted_vfs_conforms() {
    for may_vanish in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let budget = OpenFiles::new(1);
        let vfs = BudgetedVfs::new(Arc::new(SystemVfs::new()), Arc::clone(&budget), all, may_vanish);
        conformance::check(&vfs, dir.path());
        assert_eq!(budget.stats().open, 0, "a descriptor is counted for ever");
    }
}

#[test]
fn open_files_stay_within_budget_and_hot_file_stays_open() {
    let (_, budget, vfs) = world(40, 10);
    let files: Vec<_> = (0..40).map(|number| vfs.open(&path(number), OpenMode::Read).unwrap()).collect();
    for round in 0..20 {
        for (number, file) in files.iter().enumerate() {
            check(&**file, number);
            assert!(budget.stats().open <= 10, "{:?} in round {round}", budget.stats());
        }
    }
    assert!(budget.stats().reopened >= 19 * 30);
    // Reading one file between the other reads keeps it open.
    let before = budget.stats().reopened;
    for (number, file) in files.iter().enumerate().skip(1) {
        check(&*files[0], 0);
        check(&**file, number);
    }
    assert!(budget.stats().reopened - before <= 39 + 3, "{} more", budget.stats().reopened - before);
    drop(files);
    assert_eq!(budget.stats().open, 0);
}

#[test]
fn file_removed_or_renamed_stays_readable() {
    let (_, budget, vfs) = world(20, 4);
    let files: Vec<_> = (0..20).map(|number| vfs.open(&path(number), OpenMode::Read).unwrap()).collect();
    for number in [0, 1, 18, 19] {
        vfs.remove(&path(number)).unwrap();
        assert!(vfs.open(&path(number), OpenMode::Read).is_err());
    }
    for number in [2, 3, 16, 17] {
        vfs.rename(&path(number), &path(100 + number)).unwrap();
    }
    // Replaces an existing file.
    vfs.rename(&path(4), &path(5)).unwrap();
    for _ in 0..3 {
        for (number, file) in files.iter().enumerate() {
            check(&**file, number);
        }
    }
    check(&*vfs.open(&path(5), OpenMode::Read).unwrap(), 4);
    check(&*vfs.open(&path(102), OpenMode::Read).unwrap(), 2);
    drop(files);
    assert_eq!(budget.stats().open, 0);
}

#[test]
fn file_removed_by_other_process_stays_readable_if_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let (inner, budget) = (Arc::new(SystemVfs::new()), OpenFiles::new(4));
    let vfs = BudgetedVfs::new(Arc::clone(&inner) as _, Arc::clone(&budget), all, true);
    let path = |number: usize| dir.path().join(format!("{number}.run"));
    for number in 0..20 {
        inner.open(&path(number), OpenMode::CreateNew).unwrap().write_at(&bytes(number), 0).unwrap();
    }
    let files: Vec<_> = (0..20).map(|number| vfs.open(&path(number), OpenMode::Read).unwrap()).collect();
    // Another process removes the files.
    (0..20).for_each(|number| inner.remove(&path(number)).unwrap());
    for _ in 0..3 {
        for (number, file) in files.iter().enumerate() {
            check(&**file, number);
            assert_eq!(file.len().unwrap(), 3000);
        }
    }
}

#[derive(Debug)]
struct Limited {
    inner: Arc<MemVfs>,
    max: usize,
    /// Descriptors taken by other users.
    others: AtomicUsize,
    open: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct LimitedFile(Arc<dyn File>, Arc<AtomicUsize>);

impl Drop for LimitedFile {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Relaxed);
    }
}

impl File for LimitedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        unreachable!()
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        unreachable!()
    }
    fn preallocate(&self, _: u64) -> io::Result<()> {
        unreachable!()
    }
    fn sync_data(&self) -> io::Result<()> {
        unreachable!()
    }
}

impl crate::platform::VfsLayer for Limited {
    fn inner(&self) -> &dyn Vfs {
        &*self.inner
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        if self.open.load(Relaxed) + self.others.load(Relaxed) >= self.max {
            #[cfg(unix)]
            return Err(rustix::io::Errno::MFILE.into());
            // ERROR_TOO_MANY_OPEN_FILES.
            #[cfg(not(unix))]
            return Err(io::Error::from_raw_os_error(4));
        }
        let file = self.inner.open(path, mode)?;
        self.open.fetch_add(1, Relaxed);
        Ok(Arc::new(LimitedFile(file, Arc::clone(&self.open))))
    }
}

#[test]
fn out_of_descriptors_closes_files_then_fails_with_advice() {
    let (inner, _, _) = world(30, 4);
    let limited =
        Arc::new(Limited { inner, max: 20, others: AtomicUsize::new(0), open: Arc::new(AtomicUsize::new(0)) });
    let vfs = BudgetedVfs::new(Arc::clone(&limited) as _, OpenFiles::new(16), all, false);
    let files: Vec<_> = (0..30).map(|number| vfs.open(&path(number), OpenMode::Read).unwrap()).collect();
    for others in [0, 10, 18, 5] {
        limited.others.store(others, Relaxed);
        for (number, file) in files.iter().enumerate() {
            check(&**file, number);
        }
    }
    limited.others.store(20, Relaxed);
    let refused: Vec<_> = files.iter().filter_map(|file| file.read_at(&mut [0; 10], 0).err()).collect();
    assert!(!refused.is_empty());
    assert!(refused.iter().all(|error| error.to_string().contains("ulimit -n")), "{refused:?}");
    limited.others.store(0, Relaxed);
    for (number, file) in files.iter().enumerate() {
        check(&**file, number);
    }
}

#[test]
fn concurrent_reads_survive_closes_renames_and_removals() {
    const FILES: usize = 30;
    let (_, budget, vfs) = world(FILES, 4);
    let files: Vec<_> = (0..FILES).map(|number| vfs.open(&path(number), OpenMode::Read).unwrap()).collect();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let files = &files;
            scope.spawn(move || {
                for step in 0..3000 {
                    let number = (step * 7 + thread * 13) % FILES;
                    if step % 5 == 0 {
                        let held = files[number].held().unwrap();
                        check(&*held, number);
                    } else {
                        check(&*files[number], number);
                    }
                }
            });
        }
        for round in 0..20 {
            for number in 0..FILES / 2 {
                let name = |round: usize| if round == 0 { path(number) } else { path(number + 1000 * round) };
                vfs.rename(&name(round), &name(round + 1)).unwrap();
            }
        }
        (FILES / 2..FILES).for_each(|number| vfs.remove(&path(number)).unwrap());
    });
    drop(files);
    assert_eq!(budget.stats().open, 0);
}
