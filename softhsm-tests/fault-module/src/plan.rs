//! The faults, as the environment variable `FAULT_MODULE` tells them.
//!
//! ```text
//! plan   = fault { "," fault }
//! fault  = place [ "#" n [ "+" ] ] ":" action [ "=" value ]
//! place  = "load" | "unload" | "exit" | a function such as "C_Sign"
//! size   = number | "max" | ( "+" | "-" ) number
//! ```
//!
//! `#n` means the n-th call of the function only, `#n+` that one and all behind it; without it every
//! call is meant.
//!
//! | action | at | what happens |
//! |---|---|---|
//! | `print` | anywhere | a line on standard output, once past and once through stdio's buffer |
//! | `print=error` | anywhere | a line on standard error |
//! | `delay=MS` | anywhere | nothing for so many milliseconds |
//! | `hang` | anywhere | nothing, for ever |
//! | `until=PATH` | anywhere | nothing, until this file is there |
//! | `stop` | anywhere | the whole process stops, until SIGCONT |
//! | `signal=int`, `signal=kill` | anywhere | the process gets this signal |
//! | `leak` | anywhere | a descriptor stays open, also for programs that are started |
//! | `lose-sessions` | anywhere | every session has ended, as when the token was pulled and put back |
//! | `crash=segv`, `crash=abort`, `crash=exit` | anywhere | the process dies of it |
//! | `threads=N` | anywhere | so many threads are started, which never end |
//! | `handlers` | anywhere | handlers for SIGSEGV, SIGTERM and SIGALRM that end the process with 98 |
//! | `chdir` | anywhere | the working directory is the root directory |
//! | `return=NUMBER` | functions | this CKR value, and the real library isn't called |
//! | `then-return=NUMBER` | functions | this CKR value, after the real library has done its work |
//! | `then-signal=NAME` | functions | as `signal`, after the real library has done its work |
//! | `absent` | functions but the one that gives the list | a null pointer in the list |
//! | `null` | `C_GetFunctionList` | CKR_OK, and a null pointer |
//! | `misaligned` | `C_GetFunctionList` | a pointer that is off by one |
//! | `old` | `C_GetFunctionList` | a list of version 1.0 that is as short as one |
//! | `set=FLAGS`, `clear=FLAGS` | `C_GetTokenInfo` | flags of the token, names joined by `+` |
//! | `clock=TEXT` | `C_GetTokenInfo` | a clock with this time; `_` is a blank, NULs fill it up |
//! | `serial=TEXT` | `C_GetTokenInfo` | each token has this serial number |
//! | `garble` | `C_GetInfo`, `C_GetTokenInfo` | no string ends or is UTF-8; reserved flags are set |
//! | `garble`, `zero` | `C_GetAttributeValue` | values are 0xff or 0 all over |
//! | `zero` | `C_GenerateKeyPair`, `C_CreateObject` | handles of what was made are 0, which is none |
//! | `half=public`, `half=private` | `C_GenerateKeyPair` | of the pair that was made, this key alone is left |
//! | `count=SIZE` | `C_GetSlotList`, `C_GetMechanismList`, `C_FindObjects` | the number that is returned |
//! | `length=SIZE` | `C_GetAttributeValue`, `C_Sign` | the length that is returned |
//! | `refuse-query` | the functions of `count`, `length` | CKR_ARGUMENTS_BAD where the buffer is null |
//! | `other-key` | `C_SignInit` | another private key of the token signs |
//! | `flip` | `C_Sign` | one bit of the signature is wrong |
//! | `pin-pad` | `C_Login` | a login without PIN uses `FAULT_MODULE_PIN` |
//! | `session-object=PREFIX` | `C_GetAttributeValue` | CKA_TOKEN is false where CKA_LABEL starts so |

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;
use std::{env, process};

use cryptoki_sys::{
    CK_FLAGS, CK_RV, CK_ULONG, CKF_CLOCK_ON_TOKEN, CKF_LOGIN_REQUIRED,
    CKF_PROTECTED_AUTHENTICATION_PATH, CKF_USER_PIN_COUNT_LOW, CKF_USER_PIN_FINAL_TRY,
    CKF_USER_PIN_LOCKED, CKF_USER_PIN_TO_BE_CHANGED,
};
use libc::c_int;

/// Everything that is to go wrong in this process.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    faults: Vec<Fault>,
}

/// Where a fault happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place<'a> {
    Call(&'a str),
    Exit,
    Load,
    Unload,
}

/// What happens there.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Action {
    Abort,
    Absent,
    ChangeDirectory,
    ClearFlags(CK_FLAGS),
    Clock([u8; 16]),
    Complain,
    Delay(Duration),
    Flip,
    Garble,
    Half(Half),
    Handlers,
    Hang,
    Leak,
    LoseSessions,
    Misaligned,
    Null,
    Old,
    OtherKey,
    PinPad,
    Print,
    RefuseQuery,
    Return(CK_RV),
    ProcessExit,
    SegmentationFault,
    Serial([u8; 16]),
    SessionObject(String),
    SetFlags(CK_FLAGS),
    Signal(c_int),
    Size(Size),
    Stop,
    ThenReturn(CK_RV),
    ThenSignal(c_int),
    Threads(u32),
    Until(PathBuf),
    Zero,
}

/// The key of a pair that is left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Half {
    Private,
    Public,
}

/// What is returned in place of a count or a length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Size {
    Exactly(CK_ULONG),
    Less(CK_ULONG),
    More(CK_ULONG),
}

impl Size {
    pub(crate) fn instead_of(self, true_one: CK_ULONG) -> CK_ULONG {
        match self {
            Self::Exactly(size) => size,
            Self::Less(size) => true_one.wrapping_sub(size),
            Self::More(size) => true_one.wrapping_add(size),
        }
    }
}

#[derive(Debug)]
struct Fault {
    place: String,
    visits: RangeInclusive<u64>,
    action: Action,
}

impl Plan {
    /// The plan of this process; one that can't be read ends it.
    pub(crate) fn of_this_process() -> &'static Self {
        static PLAN: OnceLock<Plan> = OnceLock::new();
        PLAN.get_or_init(|| {
            let text = env::var("FAULT_MODULE").unwrap_or_default();
            Self::parse(&text).unwrap_or_else(|fault| {
                eprintln!("FAULT_MODULE: can't read \"{fault}\"");
                process::abort()
            })
        })
    }

    /// What is to happen at the n-th visit of this place, in the order of the plan.
    pub(crate) fn at(&self, place: Place<'_>, visit: u64) -> Vec<&Action> {
        self.faults
            .iter()
            .filter(|fault| fault.place == place.name() && fault.visits.contains(&visit))
            .map(|fault| &fault.action)
            .collect()
    }

    /// Fails with the part that could not be read.
    fn parse(text: &str) -> Result<Self, String> {
        let faults = text
            .split(',')
            .map(str::trim)
            .filter(|fault| !fault.is_empty())
            .map(|fault| Fault::parse(fault).ok_or_else(|| fault.to_owned()))
            .collect::<Result<_, _>>()?;
        Ok(Self { faults })
    }
}

impl Place<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Call(function) => function,
            Self::Exit => "exit",
            Self::Load => "load",
            Self::Unload => "unload",
        }
    }
}

impl Fault {
    fn parse(text: &str) -> Option<Self> {
        let (place, action) = text.split_once(':')?;
        let (place, visits) = match place.split_once('#') {
            Some((place, visits)) => (place, parse_visits(visits)?),
            None => (place, 1..=u64::MAX),
        };
        let is_call = place.starts_with("C_");
        if !is_call && !matches!(place, "exit" | "load" | "unload") {
            return None;
        }
        let action = Action::parse(action)?;
        action.fits(place).then(|| Self { place: place.to_owned(), visits, action })
    }
}

impl Action {
    fn parse(text: &str) -> Option<Self> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        Some(match (name, value) {
            ("absent", "") => Self::Absent,
            ("chdir", "") => Self::ChangeDirectory,
            ("clear", flags) => Self::ClearFlags(parse_flags(flags)?),
            ("clock", text) => Self::Clock(parse_field(text)?),
            ("count" | "length", size) => Self::Size(parse_size(size)?),
            ("crash", "abort") => Self::Abort,
            ("crash", "exit") => Self::ProcessExit,
            ("crash", "segv") => Self::SegmentationFault,
            ("delay", milliseconds) => {
                Self::Delay(Duration::from_millis(milliseconds.parse().ok()?))
            }
            ("flip", "") => Self::Flip,
            ("garble", "") => Self::Garble,
            ("handlers", "") => Self::Handlers,
            ("half", "private") => Self::Half(Half::Private),
            ("half", "public") => Self::Half(Half::Public),
            ("hang", "") => Self::Hang,
            ("leak", "") => Self::Leak,
            ("lose-sessions", "") => Self::LoseSessions,
            ("misaligned", "") => Self::Misaligned,
            ("null", "") => Self::Null,
            ("old", "") => Self::Old,
            ("other-key", "") => Self::OtherKey,
            ("pin-pad", "") => Self::PinPad,
            ("print", "") => Self::Print,
            ("print", "error") => Self::Complain,
            ("refuse-query", "") => Self::RefuseQuery,
            ("return", value) => Self::Return(parse_number(value)?),
            ("serial", text) => Self::Serial(parse_field(text)?),
            ("session-object", prefix) => Self::SessionObject(prefix.to_owned()),
            ("set", flags) => Self::SetFlags(parse_flags(flags)?),
            ("signal", name) => Self::Signal(parse_signal(name)?),
            ("stop", "") => Self::Stop,
            ("then-return", value) => Self::ThenReturn(parse_number(value)?),
            ("then-signal", name) => Self::ThenSignal(parse_signal(name)?),
            ("threads", number) => Self::Threads(number.parse().ok()?),
            ("until", path) if path.starts_with('/') => Self::Until(path.into()),
            ("zero", "") => Self::Zero,
            _ => return None,
        })
    }

    fn fits(&self, place: &str) -> bool {
        let is_counted = ["C_FindObjects", "C_GetMechanismList", "C_GetSlotList"].contains(&place);
        let is_measured = ["C_GetAttributeValue", "C_Sign"].contains(&place);
        let gives_list = place == "C_GetFunctionList";
        match self {
            Self::Absent => place.starts_with("C_") && !gives_list,
            Self::ClearFlags(_) | Self::Clock(_) | Self::Serial(_) | Self::SetFlags(_) => {
                place == "C_GetTokenInfo"
            }
            Self::Flip => place == "C_Sign",
            Self::Garble => ["C_GetAttributeValue", "C_GetInfo", "C_GetTokenInfo"].contains(&place),
            Self::Misaligned | Self::Null | Self::Old => gives_list,
            Self::OtherKey => place == "C_SignInit",
            Self::PinPad => place == "C_Login",
            Self::RefuseQuery | Self::Size(_) => is_counted || is_measured,
            Self::Return(_) | Self::ThenReturn(_) | Self::ThenSignal(_) => place.starts_with("C_"),
            Self::Half(_) => place == "C_GenerateKeyPair",
            Self::SessionObject(_) => place == "C_GetAttributeValue",
            Self::Zero => {
                ["C_CreateObject", "C_GenerateKeyPair", "C_GetAttributeValue"].contains(&place)
            }
            Self::Abort
            | Self::ChangeDirectory
            | Self::Complain
            | Self::Delay(_)
            | Self::Handlers
            | Self::Hang
            | Self::Leak
            | Self::LoseSessions
            | Self::Print
            | Self::ProcessExit
            | Self::SegmentationFault
            | Self::Signal(_)
            | Self::Stop
            | Self::Threads(_)
            | Self::Until(_) => true,
        }
    }
}

fn parse_visits(text: &str) -> Option<RangeInclusive<u64>> {
    Some(match text.strip_suffix('+') {
        Some(first) => first.parse().ok()?..=u64::MAX,
        None => {
            let only = text.parse().ok()?;
            only..=only
        }
    })
}

/// Filled up with NULs; an underscore stands for a blank.
fn parse_field(text: &str) -> Option<[u8; 16]> {
    let mut time = [0; 16];
    let text = text.replace('_', " ");
    time.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
    Some(time)
}

fn parse_size(text: &str) -> Option<Size> {
    Some(match text.split_at_checked(1)? {
        ("+", more) => Size::More(parse_number(more)?),
        ("-", less) => Size::Less(parse_number(less)?),
        _ if text == "max" => Size::Exactly(CK_ULONG::MAX),
        _ => Size::Exactly(parse_number(text)?),
    })
}

fn parse_number(text: &str) -> Option<CK_RV> {
    match text.strip_prefix("0x") {
        Some(digits) => CK_RV::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn parse_signal(name: &str) -> Option<c_int> {
    match name {
        "int" => Some(libc::SIGINT),
        "kill" => Some(libc::SIGKILL),
        _ => None,
    }
}

fn parse_flags(text: &str) -> Option<CK_FLAGS> {
    text.split('+').try_fold(0, |flags, name| {
        Some(
            flags
                | match name {
                    "CKF_CLOCK_ON_TOKEN" => CKF_CLOCK_ON_TOKEN,
                    "CKF_LOGIN_REQUIRED" => CKF_LOGIN_REQUIRED,
                    "CKF_PROTECTED_AUTHENTICATION_PATH" => CKF_PROTECTED_AUTHENTICATION_PATH,
                    "CKF_USER_PIN_COUNT_LOW" => CKF_USER_PIN_COUNT_LOW,
                    "CKF_USER_PIN_FINAL_TRY" => CKF_USER_PIN_FINAL_TRY,
                    "CKF_USER_PIN_LOCKED" => CKF_USER_PIN_LOCKED,
                    "CKF_USER_PIN_TO_BE_CHANGED" => CKF_USER_PIN_TO_BE_CHANGED,
                    _ => return None,
                },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_happen_where_and_when_they_are_planned() {
        let plan = Plan::parse("load:print, C_Sign#2:return=0x30,C_Sign:delay=5").unwrap();
        assert_eq!(plan.at(Place::Load, 1), [&Action::Print]);
        assert_eq!(plan.at(Place::Unload, 1), [] as [&Action; 0]);
        let delay = Action::Delay(Duration::from_millis(5));
        assert_eq!(plan.at(Place::Call("C_Sign"), 1), [&delay]);
        assert_eq!(plan.at(Place::Call("C_Sign"), 2), [&Action::Return(0x30), &delay]);
        let plan = Plan::parse("C_Sign#2+:length=+0x10").unwrap();
        let longer = Action::Size(Size::More(16));
        assert_eq!(plan.at(Place::Call("C_Sign"), 1), [] as [&Action; 0]);
        assert_eq!(plan.at(Place::Call("C_Sign"), 3), [&longer]);
    }

    #[test]
    fn flags_add_up() {
        let plan =
            Plan::parse("C_GetTokenInfo:set=CKF_USER_PIN_LOCKED+CKF_LOGIN_REQUIRED").unwrap();
        let both = CKF_USER_PIN_LOCKED | CKF_LOGIN_REQUIRED;
        assert_eq!(plan.at(Place::Call("C_GetTokenInfo"), 1), [&Action::SetFlags(both)]);
    }

    #[test]
    fn misspelt_plans_are_refused() {
        for text in [
            "C_Sign",
            "C_Sign:flop",
            "C_Sign#x:flip",
            "C_Login:flip",
            "load:return=1",
            "C_GetTokenInfo:set=CKF_NOTHING",
            "nowhere:print",
            "C_Sign:until",
            "C_Sign:length=",
            "C_Login:count=1",
            "C_GetFunctionList:absent",
        ] {
            assert_eq!(Plan::parse(text).unwrap_err(), text);
        }
    }
}
