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
//! | `old` | `C_GetFunctionList` | a list that says of itself that it is of version 1.0, as scute's |
//! | `refuse-arguments=NUMBER` | `C_Initialize` | this CKR value, unless the argument is null |
//! | `set=FLAGS`, `clear=FLAGS` | `C_GetTokenInfo` | flags of the token, names joined by `+` |
//! | `clock=TEXT` | `C_GetTokenInfo` | a clock with this time; `_` is a blank, NULs fill it up |
//! | `serial=TEXT` | `C_GetTokenInfo` | each token has this serial number |
//! | `garble` | `C_GetInfo`, `C_GetTokenInfo` | no string ends or is UTF-8; reserved flags are set |
//! | `garble`, `zero` | `C_GetAttributeValue` | values are 0xff or 0 all over |
//! | `zero` | `C_GenerateKeyPair`, `C_CreateObject` | handles of what was made are 0, which is none |
//! | `half=public`, `half=private` | `C_GenerateKeyPair` | of the pair that was made, this key alone is left |
//! | `count=SIZE` | `C_GetSlotList`, `C_GetMechanismList`, `C_FindObjects` | the number that is returned |
//! | `length=SIZE` | `C_GetAttributeValue`, `C_Sign` | the length that is returned |
//! | `pad` | `C_GetAttributeValue` | CKA_VALUE has 16 zeros behind it |
//! | `refuse-query` | the functions of `count`, `length` | CKR_ARGUMENTS_BAD where the buffer is null |
//! | `other-key` | `C_SignInit` | another private key of the token signs |
//! | `flip` | `C_Sign` | one bit of the signature is wrong |
//! | `pin-pad` | `C_Login` | a login without PIN uses `FAULT_MODULE_PIN` |
//! | `session-object=PREFIX` | `C_GetAttributeValue` | CKA_TOKEN is false where CKA_LABEL starts so |

use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::{env, process};

use cryptoki_sys::{
    CK_FLAGS, CK_RV, CK_ULONG, CKF_CLOCK_ON_TOKEN, CKF_LOGIN_REQUIRED,
    CKF_PROTECTED_AUTHENTICATION_PATH, CKF_TOKEN_INITIALIZED, CKF_USER_PIN_COUNT_LOW,
    CKF_USER_PIN_FINAL_TRY, CKF_USER_PIN_LOCKED, CKF_USER_PIN_TO_BE_CHANGED, CKF_WRITE_PROTECTED,
};

/// Everything that is to go wrong in this process.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    faults: Vec<Fault>,
}

#[derive(Debug)]
struct Fault {
    place: String,
    visits: RangeInclusive<u64>,
    action: Action,
}

/// What happens there, by its name and value in the plan. The value can be read.
#[derive(Debug)]
pub(crate) struct Action {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Whether one of the actions has this name.
pub(crate) fn has(actions: &[&Action], name: &str) -> bool {
    actions.iter().any(|action| action.name == name)
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
    pub(crate) fn at(&self, place: &str, visit: u64) -> Vec<&Action> {
        let is_now = |fault: &&Fault| fault.place == place && fault.visits.contains(&visit);
        self.faults.iter().filter(is_now).map(|fault| &fault.action).collect()
    }

    /// Fails with the part that could not be read.
    fn parse(text: &str) -> Result<Self, String> {
        let faults = text.split(',').map(str::trim).filter(|fault| !fault.is_empty());
        let faults = faults.map(|fault| Fault::parse(fault).ok_or_else(|| fault.to_owned()));
        Ok(Self { faults: faults.collect::<Result<_, _>>()? })
    }
}

impl Fault {
    fn parse(text: &str) -> Option<Self> {
        let (place, action) = text.split_once(':')?;
        let (place, visits) = match place.split_once('#') {
            Some((place, visits)) => (place, parse_visits(visits)?),
            None => (place, 1..=u64::MAX),
        };
        let is_place = place.starts_with("C_") || ["exit", "load", "unload"].contains(&place);
        let (name, value) = action.split_once('=').unwrap_or((action, ""));
        let action = Action { name: name.to_owned(), value: value.to_owned() };
        (is_place && action.fits(place)).then(|| Self { place: place.to_owned(), visits, action })
    }
}

impl Action {
    /// Whether there is such an action at this place, with such a value.
    fn fits(&self, place: &str) -> bool {
        let is_call = place.starts_with("C_");
        let gives_list = place == "C_GetFunctionList";
        let is_made = ["C_CreateObject", "C_GenerateKeyPair"].contains(&place);
        let is_attribute = place == "C_GetAttributeValue";
        let is_token_info = place == "C_GetTokenInfo";
        let is_counted = ["C_FindObjects", "C_GetMechanismList", "C_GetSlotList"].contains(&place);
        let has_size = is_counted || is_attribute || place == "C_Sign";
        match (self.name.as_str(), self.value.as_str()) {
            ("chdir" | "handlers" | "hang" | "leak" | "lose-sessions" | "print" | "stop", "") => {
                true
            }
            ("crash", "abort" | "exit" | "segv") | ("print", "error") => true,
            ("signal", "int" | "kill") => true,
            ("delay" | "threads", _) => self.number().is_some(),
            ("until", path) => path.starts_with('/'),
            ("return" | "then-return", _) => is_call && self.number().is_some(),
            ("then-signal", "int" | "kill") => is_call,
            ("absent", "") => is_call && !gives_list,
            ("misaligned" | "null" | "old", "") => gives_list,
            ("refuse-arguments", _) => place == "C_Initialize" && self.number().is_some(),
            ("clear" | "set", _) => is_token_info && self.flags().is_some(),
            ("clock" | "serial", _) => is_token_info && self.field().is_some(),
            ("garble", "") => is_attribute || is_token_info || place == "C_GetInfo",
            ("pad", "") => is_attribute,
            ("zero", "") => is_attribute || is_made,
            ("half", "private" | "public") => place == "C_GenerateKeyPair",
            ("count" | "length", _) => has_size && self.size(0).is_some(),
            ("refuse-query", "") => has_size,
            ("other-key", "") => place == "C_SignInit",
            ("flip", "") => place == "C_Sign",
            ("pin-pad", "") => place == "C_Login",
            ("session-object", _) => is_attribute,
            _ => false,
        }
    }

    pub(crate) fn number(&self) -> Option<CK_RV> {
        parse_number(&self.value)
    }

    /// Filled up with NULs; an underscore stands for a blank.
    pub(crate) fn field(&self) -> Option<[u8; 16]> {
        let mut field = [0; 16];
        let text = self.value.replace('_', " ");
        field.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(field)
    }

    /// What is returned in place of this count or length.
    pub(crate) fn size(&self, true_one: CK_ULONG) -> Option<CK_ULONG> {
        Some(match self.value.split_at_checked(1)? {
            ("+", more) => true_one.wrapping_add(parse_number(more)?),
            ("-", less) => true_one.wrapping_sub(parse_number(less)?),
            _ if self.value == "max" => CK_ULONG::MAX,
            _ => self.number()?,
        })
    }

    pub(crate) fn flags(&self) -> Option<CK_FLAGS> {
        self.value.split('+').try_fold(0, |flags, name| {
            let flag = match name {
                "CKF_CLOCK_ON_TOKEN" => CKF_CLOCK_ON_TOKEN,
                "CKF_LOGIN_REQUIRED" => CKF_LOGIN_REQUIRED,
                "CKF_PROTECTED_AUTHENTICATION_PATH" => CKF_PROTECTED_AUTHENTICATION_PATH,
                "CKF_USER_PIN_COUNT_LOW" => CKF_USER_PIN_COUNT_LOW,
                "CKF_USER_PIN_FINAL_TRY" => CKF_USER_PIN_FINAL_TRY,
                "CKF_USER_PIN_LOCKED" => CKF_USER_PIN_LOCKED,
                "CKF_USER_PIN_TO_BE_CHANGED" => CKF_USER_PIN_TO_BE_CHANGED,
                "CKF_TOKEN_INITIALIZED" => CKF_TOKEN_INITIALIZED,
                "CKF_WRITE_PROTECTED" => CKF_WRITE_PROTECTED,
                _ => return None,
            };
            Some(flags | flag)
        })
    }
}

fn parse_visits(text: &str) -> Option<RangeInclusive<u64>> {
    let first = text.trim_end_matches('+').parse().ok()?;
    Some(first..=if text.ends_with('+') { u64::MAX } else { first })
}

fn parse_number(text: &str) -> Option<CK_RV> {
    match text.strip_prefix("0x") {
        Some(digits) => CK_RV::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
