//! The PIN in the process's memory: no other process of the same user sees it while it is there, and
//! not even root finds it on the heap when it is no longer needed.

use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;

use rustix::io::Errno;

use crate::fixture::*;

/// So long that no heap's bookkeeping covers all of a copy that was freed, and of characters that
/// stand nowhere else together.
pub(crate) const PIN: &str = "Quartz~Vole_8261^Jinx%Plum=5039@Wyrm!Tofu";
/// So much of it is a trace.
const TRACE: usize = 8;
/// The library stops the process when it is asked to end: as long as it takes to look around.
pub(crate) const AT_ITS_END: &str = "C_Finalize:stop";
/// The user who looks on, and whose program it is.
pub(crate) const NOBODY: u32 = 65534;
/// A variable that holds the PIN.
const VARIABLE: &str = "PIN_OF_A_TEST";

fn token() -> Store {
    Store::new([blueprint("test token", Object::pair(key(Kind::P256), &[1])).with_pin(PIN)])
}

/// A request for a signature, through the library that misbehaves so.
fn sign(store: &Store, configuration: Configuration, faults: &str) -> Invocation {
    let invocation = store.sign_with(&store.faulty(configuration));
    suffering(invocation, store, faults).without_variable("TOKEN_PIN")
}

pub(crate) fn suffering(invocation: Invocation, store: &Store, faults: &str) -> Invocation {
    invocation.suffering(store, faults).without_variable("FAULT_MODULE_PIN")
}

/// A file of this content beside the token.
fn file(store: &Store, name: &str, content: &str, mode: u32) -> PathBuf {
    let path = store.path(name);
    write_file(&path, content, mode);
    path
}

/// The configurations that hold the PIN, or say where it is, apart from a person and a program.
fn stored(store: &Store) -> [(&'static str, Configuration); 3] {
    let path = file(store, "pin", PIN, 0o600);
    let source = |source: &str| store.configuration().with("pinSource", source);
    [
        ("pin", store.configuration().with("pin", PIN)),
        ("file", source(&format!("file:{}", path.display()))),
        ("env", source(&format!("env:{VARIABLE}"))),
    ]
}

/// Where in the process's memory there is a piece of these secrets: its first characters, and what surrounds them. The
/// process stands still meanwhile.
pub(crate) fn traces_of(secrets: &[&str], process: Pid) -> Vec<String> {
    need_root();
    kill_process(process, Signal::STOP).unwrap();
    wait_until_stopped(process);
    let place = PathBuf::from(format!("/proc/{}", process.as_raw_nonzero()));
    let memory = File::open(place.join("mem")).unwrap();
    let pieces = secrets.iter().flat_map(|it| it.as_bytes().windows(TRACE));
    let pieces: Vec<_> = pieces.collect();
    let is_trace = |bytes: &[u8]| pieces.iter().any(|piece| bytes.starts_with(piece));
    let (mut found, mut is_read) = (Vec::new(), false);
    for line in fs::read_to_string(place.join("maps")).unwrap().lines() {
        let (range, rest) = line.split_once(' ').unwrap();
        // What can't be written is what stands in a file. The stack, with the environment above it, is not wiped.
        if !rest.starts_with("rw") || rest.ends_with("[stack]") {
            continue;
        }
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        memory.read_exact_at(&mut bytes, start).unwrap();
        let mut position = 0;
        while let Some(at) = bytes[position..].iter().position(|byte| *byte != 0) {
            let here = position + at;
            position = here + 1;
            is_read = true;
            if is_trace(&bytes[here..]) {
                let around = here.saturating_sub(TRACE)..bytes.len().min(here + 2 * PIN.len());
                let around = String::from_utf8_lossy(&bytes[around]).into_owned();
                found.push(format!("{around:?} in {line}"));
                position += PIN.len();
            }
        }
    }
    assert!(is_read, "its memory could not be read");
    kill_process(process, Signal::CONT).unwrap();
    found
}

/// Demands that the program has no piece of the PIN left when it has answered.
#[track_caller]
pub(crate) fn assert_wiped(source: &str, run: &Running) {
    // It stops by itself once it has answered, and not sooner.
    wait_until_stopped(run.pid());
    let found = traces_of(&[PIN], run.pid());
    assert!(found.is_empty(), "{source}: {found:#?}");
}

#[test]
fn an_answered_request_leaves_no_pin_in_memory() {
    needs_isolation!();
    let store = token();
    let asking = file(&store, "ask", &format!("#!/bin/sh\necho '{PIN}'\n"), 0o755);
    let source = |source| store.configuration().with("pinSource", source);
    let by_program = sign(&store, source("askpass"), AT_ITS_END)
        .variable("PKCS11_EXTERNAL_SIGNER_ASKPASS", asking);
    let stored = stored(&store).map(|(name, configuration)| {
        let invocation = sign(&store, configuration, AT_ITS_END);
        (
            name,
            match name {
                "env" => invocation.variable(VARIABLE, PIN),
                _ => invocation,
            },
        )
    });
    let uri = format!("pkcs11:?pin-value={}", PIN.replace('%', "%25").replace('^', "%5E"));
    let configuration = store.faulty(store.configuration().with("pin", PIN));
    let request = sign_request(&configuration, &Options::hash(Hash::Sha256), &sample(32));
    let escaped = request.to_string().replace("Quartz~", "Quartz\\u007e");
    let others = [
        ("uri", sign(&store, store.configuration().with("uri", &uri), AT_ITS_END)),
        ("escaped pin", sign(&store, configuration, AT_ITS_END).request(&escaped)),
        ("askpass", by_program),
        ("stdin", sign(&store, source("stdin"), AT_ITS_END).piped(format!("{PIN}\n"))),
    ];
    for (source, invocation) in stored.into_iter().chain(others) {
        let run = invocation.start(None);
        assert_wiped(source, &run);
        run.finish().signature();
    }

    let mut terminal = sign(&store, store.configuration(), AT_ITS_END).at_terminal();
    terminal.expect_prompt().type_line(PIN);
    assert_wiped("typed", terminal.program());
    terminal.finish().0.signature();

    // A key that wants it again for the signature.
    let pair = Object::pair(key(Kind::P256), &[1]).map(Object::always_authenticate);
    let store = Store::new([blueprint("test token", pair).with_pin(PIN)]);
    let mut terminal = sign(&store, store.configuration(), AT_ITS_END).at_terminal();
    terminal.expect_prompt().type_line(PIN);
    assert_wiped("typed, for a key that wants it twice", terminal.program());
    terminal.finish().0.signature();
}

/// Also where the PIN was refused, and where the request was.
#[test]
fn a_failed_request_leaves_no_pin_in_memory() {
    needs_isolation!();
    for (faults, code) in
        [("C_Login:return=0xa0", 7), ("C_Sign:return=0x30", 8), ("C_OpenSession:return=0x30", 5)]
    {
        // A PIN that was refused isn't sent again.
        let store = token();
        let configuration = store.configuration().with("pin", PIN);
        let run = sign(&store, configuration, &format!("{faults},{AT_ITS_END}")).start(None);
        assert_wiped(faults, &run);
        assert_eq!(run.finish().status.code(), Some(code), "{faults}");
    }
}

/// `run` of this shell script with this configuration.
fn run(store: &Store, configuration: Configuration, script: &str, faults: &str) -> Invocation {
    let configuration = store.faulty(configuration);
    let invocation = store.with_kubeconfig(&configuration).arguments(&["run", "sh", "-c", script]);
    suffering(invocation, store, faults)
}

/// It is kept once, for a token that is put back and for keys that want it again, beside what the
/// kubeconfig or the variable held; and the command gets neither.
#[test]
fn a_run_keeps_the_pin_once_and_its_command_has_none() {
    needs_isolation!();
    let store = token();
    let script = "cat $KUBECONFIG; echo; env; echo ready; read _; exit 0";
    for (source, configuration) in stored(&store) {
        let (input, keyboard) = std::io::pipe().unwrap();
        let input = File::from(std::os::fd::OwnedFd::from(input));
        let mut run = run(&store, configuration, script, AT_ITS_END)
            .variable(VARIABLE, if source == "env" { PIN } else { "" })
            .input_file(input)
            .start(None);
        loop {
            let line = run.line();
            assert!(!line.contains(PIN), "{source}: the command got {line}");
            if line == "ready" {
                break;
            }
        }
        let kept = traces_of(&[PIN], run.pid());
        let most = if source == "file" { 1 } else { 2 };
        assert!((1..=most).contains(&kept.len()), "{source}: {kept:#?}");
        drop(keyboard);
        assert_wiped(source, &run);
        run.finish().printed();
    }
}

/// The program as an unprivileged user's, with a copy of itself that this user can read: what
/// can't be read can't be dumped either, whatever the program does. To be called last.
fn by_nobody(store: &Store, invocation: Invocation) -> Invocation {
    let directory = store.directory.path();
    let copy = copy_of_program(directory);
    hand_over(directory, NOBODY);
    invocation.program(&copy).by(NOBODY)
}

/// A process of the same user.
pub(crate) fn onlooker(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).uid(NOBODY).gid(NOBODY);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// What of the process another one of the same user can read.
fn readable(process: Pid) -> Vec<&'static str> {
    let place = format!("/proc/{}", process.as_raw_nonzero());
    let can_be_read = |name: &&str| {
        let name = format!("{place}/{name}");
        // mem has nothing at its beginning; that it can be opened is enough.
        let script = "exec 3< \"$0\" && { [ ! -d \"$0\" ] || ls \"$0\"; }";
        onlooker("sh", &["-c", script, &name]).status().unwrap().success()
    };
    ["environ", "mem", "maps", "auxv", "fd", "map_files"].into_iter().filter(can_be_read).collect()
}

/// Whether another process of the same user could attach to it, as a debugger does.
pub(crate) fn is_traceable(process: Pid) -> bool {
    let mut debugger = onlooker("true", &[]);
    let number = process.as_raw_nonzero().get();
    let attach = move || {
        #[expect(unsafe_code, reason = "rustix has no ptrace")]
        // SAFETY: a system call that reads no memory; with its caller's end it is undone.
        match unsafe { libc::ptrace(libc::PTRACE_SEIZE, number, 0, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    #[expect(unsafe_code, reason = "between fork and exec there is no safe code")]
    // SAFETY: the closure makes a system call and nothing else.
    unsafe {
        debugger.pre_exec(attach);
    }
    match debugger.status() {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(Errno::PERM.raw_os_error()));
            false
        }
    }
}

#[track_caller]
pub(crate) fn assert_hidden(process: Pid) {
    assert_eq!(readable(process), [""; 0]);
    assert!(!is_traceable(process), "a debugger can attach to it");
    let place = PathBuf::from(format!("/proc/{}", process.as_raw_nonzero()));
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&place.join("environ").metadata().unwrap()), 0);
    let bytes = fs::read(place.join("cmdline")).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    assert!(!text.is_empty() && !text.contains(PIN), "{text}");
}

/// Waits until the library has recorded a call of this function.
pub(crate) fn wait_for_call(store: &Store, function: &str) {
    let record = store.path("calls");
    wait_until(function, || {
        fs::read_to_string(&record).is_ok_and(|calls| calls.contains(function))
    });
    fs::remove_file(record).unwrap();
}

#[test]
fn others_of_the_same_user_see_nothing_of_it() {
    needs_isolation!();
    // They would, if the program did nothing about it.
    let mut other = onlooker("sleep", &["60"]).spawn().unwrap();
    let seen = readable(Pid::from_child(&other));
    assert!(seen.contains(&"environ"), "{seen:?}");
    other.kill().unwrap();
    other.wait().unwrap();

    let store = token();
    let invocation = sign(&store, store.configuration(), "");
    let mut terminal = by_nobody(&store, invocation).at_terminal();
    terminal.expect_prompt();
    assert_hidden(terminal.program().pid());
    terminal.type_line(PIN).finish().0.signature();
    fs::remove_file(store.path("calls")).unwrap();

    // While the library signs, the PIN is there.
    for (source, configuration) in stored(&store) {
        let invocation = sign(&store, configuration, "C_Sign:stop");
        let variable = if source == "env" { PIN } else { "" };
        let running = by_nobody(&store, invocation).variable(VARIABLE, variable).start(None);
        wait_until_stopped(running.pid());
        assert_hidden(running.pid());
        kill_process(running.pid(), Signal::CONT).unwrap();
        running.finish().signature();
    }

    // And while a command runs.
    let configuration = store.configuration().with("pin", PIN);
    let (input, keyboard) = std::io::pipe().unwrap();
    let input = File::from(std::os::fd::OwnedFd::from(input));
    let invocation = run(&store, configuration, "echo ready; read _; exit 0", "").input_file(input);
    let mut running = by_nobody(&store, invocation).start(None);
    assert_eq!(running.line(), "ready");
    assert_hidden(running.pid());
    drop(keyboard);
    running.finish().printed();
}

/// Whatever the caller allows: the program allows none.
#[test]
fn no_core_file_is_left() {
    const SIGNER: &str = "\"$SIGNER\"";
    let store = token();
    let script = |program: &str| {
        format!("cd \"$HOME\"; ulimit -c unlimited; echo ready >&2; exec {program}")
    };
    let core = |program: &str, signal: Signal| {
        let configuration = store.configuration().with("pin", PIN);
        let mut running =
            sign(&store, configuration, "C_Sign:hang").within("sh", &script(program)).start(None);
        running.wait_for_error("ready");
        if program == SIGNER {
            wait_for_call(&store, "C_SignInit");
        }
        kill_process(running.pid(), signal).unwrap();
        let outcome = running.finish();
        match (program, signal) {
            // Told as the library's.
            (SIGNER, Signal::ABORT) => drop(outcome.fails(4, &["(SIGABRT)"])),
            _ => drop(outcome.dies_of(signal)),
        }
        outcome.status.core_dumped()
    };
    for signal in [Signal::ABORT, Signal::QUIT] {
        assert!(core("sleep 60", signal), "this machine leaves no cores");
        assert!(!core(SIGNER, signal));
    }
    let invocation = sign(&store, store.configuration(), "");
    let mut terminal = invocation.within("sh", &script("\"$SIGNER\"")).at_terminal();
    let outcome = terminal.expect_prompt().type_text("half").send(Signal::QUIT).finish().0;
    assert!(!outcome.dies_of(Signal::QUIT).status.core_dumped());
}
