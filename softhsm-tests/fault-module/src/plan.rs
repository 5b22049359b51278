//! The faults, as the environment variable `FAULT_MODULE` tells them.
//!
//! ```text
//! plan   = fault { "," fault }
//! fault  = place [ "#" n ] ":" action [ "=" value ]
//! place  = "load" | "unload" | "exit" | a function such as "C_Sign"
//! ```
//!
//! `#n` means the n-th call of the function only; without it every call is meant.
//!
//! | action | at | what happens |
//! |---|---|---|
//! | `print` | anywhere | a line on standard output, once past and once through stdio's buffer |
//! | `delay=MS` | anywhere | nothing for so many milliseconds |
//! | `hang` | anywhere | nothing, for ever |
//! | `leak` | anywhere | a descriptor stays open, also for programs that are started |
//! | `crash=segv`, `crash=abort` | anywhere | the process dies of it |
//! | `return=NUMBER` | functions | this CKR value, and the real library isn't called |
//! | `set=FLAGS`, `clear=FLAGS` | `C_GetTokenInfo` | flags of the token, names joined by `+` |
//! | `flip` | `C_Sign` | one bit of the signature is wrong |
//! | `pin-pad` | `C_Login` | a login without PIN uses `FAULT_MODULE_PIN` |
//! | `session-object=PREFIX` | `C_GetAttributeValue` | CKA_TOKEN is false where CKA_LABEL starts so |

use std::sync::OnceLock;
use std::time::Duration;
use std::{env, process};

use cryptoki_sys::{
    CK_FLAGS, CK_RV, CKF_LOGIN_REQUIRED, CKF_PROTECTED_AUTHENTICATION_PATH, CKF_USER_PIN_COUNT_LOW,
    CKF_USER_PIN_FINAL_TRY, CKF_USER_PIN_LOCKED, CKF_USER_PIN_TO_BE_CHANGED,
};

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
    ClearFlags(CK_FLAGS),
    Delay(Duration),
    Flip,
    Hang,
    Leak,
    PinPad,
    Print,
    Return(CK_RV),
    SegmentationFault,
    SessionObject(String),
    SetFlags(CK_FLAGS),
}

#[derive(Debug)]
struct Fault {
    place: String,
    /// 1 is the first call.
    nth: Option<u64>,
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
            .filter(|fault| fault.place == place.name() && fault.nth.is_none_or(|nth| nth == visit))
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
        let (place, nth) = match place.split_once('#') {
            Some((place, nth)) => (place, Some(nth.parse().ok()?)),
            None => (place, None),
        };
        let is_call = place.starts_with("C_");
        if !is_call && !matches!(place, "exit" | "load" | "unload") {
            return None;
        }
        let action = Action::parse(action)?;
        action.fits(place).then(|| Self {
            place: place.to_owned(),
            nth,
            action,
        })
    }
}

impl Action {
    fn parse(text: &str) -> Option<Self> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        Some(match (name, value) {
            ("clear", flags) => Self::ClearFlags(parse_flags(flags)?),
            ("crash", "abort") => Self::Abort,
            ("crash", "segv") => Self::SegmentationFault,
            ("delay", milliseconds) => {
                Self::Delay(Duration::from_millis(milliseconds.parse().ok()?))
            }
            ("flip", "") => Self::Flip,
            ("hang", "") => Self::Hang,
            ("leak", "") => Self::Leak,
            ("pin-pad", "") => Self::PinPad,
            ("print", "") => Self::Print,
            ("return", value) => Self::Return(parse_number(value)?),
            ("session-object", prefix) => Self::SessionObject(prefix.to_owned()),
            ("set", flags) => Self::SetFlags(parse_flags(flags)?),
            _ => return None,
        })
    }

    fn fits(&self, place: &str) -> bool {
        match self {
            Self::ClearFlags(_) | Self::SetFlags(_) => place == "C_GetTokenInfo",
            Self::Flip => place == "C_Sign",
            Self::PinPad => place == "C_Login",
            Self::Return(_) => place.starts_with("C_"),
            Self::SessionObject(_) => place == "C_GetAttributeValue",
            Self::Abort
            | Self::Delay(_)
            | Self::Hang
            | Self::Leak
            | Self::Print
            | Self::SegmentationFault => true,
        }
    }
}

fn parse_number(text: &str) -> Option<CK_RV> {
    match text.strip_prefix("0x") {
        Some(digits) => CK_RV::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn parse_flags(text: &str) -> Option<CK_FLAGS> {
    text.split('+').try_fold(0, |flags, name| {
        Some(
            flags
                | match name {
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
        assert_eq!(
            plan.at(Place::Call("C_Sign"), 2),
            [&Action::Return(0x30), &delay]
        );
    }

    #[test]
    fn flags_add_up() {
        let plan =
            Plan::parse("C_GetTokenInfo:set=CKF_USER_PIN_LOCKED+CKF_LOGIN_REQUIRED").unwrap();
        let both = CKF_USER_PIN_LOCKED | CKF_LOGIN_REQUIRED;
        assert_eq!(
            plan.at(Place::Call("C_GetTokenInfo"), 1),
            [&Action::SetFlags(both)]
        );
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
        ] {
            assert_eq!(Plan::parse(text).unwrap_err(), text);
        }
    }
}
