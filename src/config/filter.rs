//! A part of a configuration, to choose by: any of its selectors, or none.

use super::allowed::Allowed;
use super::error::ConfigError;
use super::{InitArgs, ObjectSelector, Reader, TokenSelector, TrustedLibrary};
use crate::protocol::Configuration;

/// Which library, tokens and objects are meant; what isn't given doesn't matter.
pub struct Filter {
    pub library: Option<TrustedLibrary>,
    pub init_args: Option<InitArgs>,
    pub token: TokenSelector,
    pub object: ObjectSelector,
}

impl Filter {
    /// Takes the values of the keys it knows out of `map`; all other keys pass.
    pub fn from_map(map: &mut Configuration) -> Result<Self, ConfigError> {
        let mut reader = Reader::new(map);
        let path = |value: &str| TrustedLibrary::check(value);
        let library = reader.read("pathLib", path);
        if library.is_absent()
            && let Err(problem) = Allowed::read()
        {
            // Told once, and not of each library that is found.
            reader.problems.push(problem);
        }
        let library = library.value();
        let init_args = reader.read("initArgs", InitArgs::parse).value();
        let token = TokenSelector::read_any(&mut reader).0;
        let object = ObjectSelector::read_any(&mut reader).0;
        reader.finish(Self {
            library,
            init_args,
            token,
            object,
        })
    }
}
