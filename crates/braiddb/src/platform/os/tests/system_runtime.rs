#![cfg(any(target_os = "linux", windows))]

use crate::platform::{Runtime, SystemRuntime};

#[cfg(target_os = "linux")]
#[test]
fn give_way_lowers_priority_of_calling_thread_only() {
    let nice = || rustix::process::getpriority_process(None).unwrap();
    let before = nice();
    let (report, reported) = std::sync::mpsc::channel();
    let runtime = std::sync::Arc::new(SystemRuntime::new());
    let other = std::sync::Arc::clone(&runtime);
    let body = Box::new(move || {
        other.give_way();
        report.send(nice()).unwrap();
    });
    runtime.spawn("nice", body).unwrap().join().unwrap();
    assert_eq!((reported.recv().unwrap(), nice()), ((before + 10).min(19), before));
}

#[test]
fn on_processors_restricts_started_threads() {
    let refused = |processors: &[usize]| SystemRuntime::on_processors(processors).unwrap_err();
    assert_eq!(refused(&[]).kind(), std::io::ErrorKind::InvalidInput);
    for none in [[0, 1023], [0, 100_000]] {
        refused(&none);
    }
    let count = std::thread::available_parallelism().unwrap().get();
    let Some(last) =
        (0..1024).filter(|processor| SystemRuntime::on_processors(&[*processor]).is_ok()).take(count).last()
    else {
        panic!("this process may run nowhere");
    };
    let runtime = SystemRuntime::on_processors(&[last]).unwrap();
    let (report, reported) = std::sync::mpsc::channel();
    let body = Box::new(move || report.send(std::thread::available_parallelism().unwrap().get()).unwrap());
    runtime.spawn("put", body).unwrap().join().unwrap();
    // Windows reports the processors of the process instead.
    assert_eq!(reported.recv().unwrap(), if cfg!(windows) { count } else { 1 });
    assert_eq!(std::thread::available_parallelism().unwrap().get(), count, "this thread is where it was");
}
