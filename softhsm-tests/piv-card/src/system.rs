//! What the applet needs of the card's operating system (Trussed): RSA, PINs and wrapped keys are
//! extensions, each with a crate that does it.

use rand_core::OsRng;
use trussed::ClientImplementation;
use trussed::backend::{Backend, BackendId};
use trussed::pipe::{ServiceEndpoint, TrussedChannel};
use trussed::platform::{self, Syscall};
use trussed::serde_extensions::{ExtensionDispatch, ExtensionId, ExtensionImpl};
use trussed::service::{Service, ServiceResources};
use trussed::types::{Context, CoreContext};
use trussed::virt::{Store, StoreConfig, UserInterface};
use trussed_auth::AuthExtension;
use trussed_auth_backend::{AuthBackend, AuthContext, FilesystemLayout};
use trussed_chunked::ChunkedExtension;
use trussed_core::Error;
use trussed_core::api::{Reply, Request, reply, request};
use trussed_core::types::Location;
use trussed_hpke::HpkeExtension;
use trussed_rsa_alloc::SoftwareRsa;
use trussed_staging::{StagingBackend, StagingContext};
use trussed_wrap_key_to_file::WrapKeyToFileExtension;

/// The applet's way into the system.
pub(crate) type Client<'a> = ClientImplementation<'a, Call<'a>, Extensions>;

/// Runs something with a system of its own.
pub(crate) fn run<R>(mut store: StoreConfig<'_>, with: impl FnOnce(Client<'_>) -> R) -> R {
    store.with_store(|store| {
        let channel = TrussedChannel::new();
        let (requester, responder) = channel.split().expect("a new channel");
        let platform = Platform { store, rng: OsRng, interface: UserInterface::new() };
        let context = CoreContext::new("piv".try_into().expect("a short path"));
        let call = Call {
            service: Service::with_dispatch(platform, Extensions::new()),
            endpoint: [ServiceEndpoint::new(responder, context, BACKENDS)],
        };
        with(Client::new(requester, call, None))
    })
}

struct Platform<'a> {
    store: Store<'a>,
    rng: OsRng,
    interface: UserInterface,
}

impl<'a> platform::Platform for Platform<'a> {
    type R = OsRng;
    type S = Store<'a>;
    type UI = UserInterface;

    fn rng(&mut self) -> &mut OsRng {
        &mut self.rng
    }

    fn store(&self) -> Store<'a> {
        self.store
    }

    fn user_interface(&mut self) -> &mut UserInterface {
        &mut self.interface
    }
}

/// A system call is served where it is made: this card has no other program.
pub(crate) struct Call<'a> {
    service: Service<Platform<'a>, Extensions>,
    endpoint: [ServiceEndpoint<'a, Beyond, Contexts>; 1],
}

impl Syscall for Call<'_> {
    fn syscall(&mut self) {
        self.service.process(&mut self.endpoint);
    }
}

/// Extensions and RSA first, the core for the rest.
const BACKENDS: &[BackendId<Beyond>] = &[BackendId::Custom(Beyond), BackendId::Core];

/// All that is beyond the core.
pub(crate) struct Beyond;

#[derive(Default)]
pub(crate) struct Contexts {
    pins: AuthContext,
    staging: StagingContext,
}

pub(crate) struct Extensions {
    pins: AuthBackend,
    staging: StagingBackend,
    rsa: SoftwareRsa,
}

impl Extensions {
    fn new() -> Self {
        Self {
            pins: AuthBackend::new(Location::Internal, FilesystemLayout::V1),
            staging: StagingBackend::new(),
            rsa: SoftwareRsa,
        }
    }
}

macro_rules! extensions {
    ($($name:ident = $number:literal: $extension:ty, $backend:ident;)*) => {
        pub(crate) enum Extension {
            $($name = $number),*
        }

        impl From<Extension> for u8 {
            fn from(extension: Extension) -> Self {
                extension as Self
            }
        }

        impl TryFrom<u8> for Extension {
            type Error = Error;

            fn try_from(number: u8) -> Result<Self, Error> {
                match number {
                    $($number => Ok(Self::$name),)*
                    _ => Err(Error::FunctionNotSupported),
                }
            }
        }

        $(impl ExtensionId<$extension> for Extensions {
            type Id = Extension;
            const ID: Extension = Extension::$name;
        })*

        impl ExtensionDispatch for Extensions {
            type BackendId = Beyond;
            type Context = Contexts;
            type ExtensionId = Extension;

            fn core_request<P: platform::Platform>(
                &mut self,
                _: &Beyond,
                context: &mut Context<Contexts>,
                request: &Request,
                resources: &mut ServiceResources<P>,
            ) -> Result<Reply, Error> {
                self.rsa.request(&mut context.core, &mut (), request, resources)
            }

            fn extension_request<P: platform::Platform>(
                &mut self,
                _: &Beyond,
                extension: &Extension,
                context: &mut Context<Contexts>,
                request: &request::SerdeExtension,
                resources: &mut ServiceResources<P>,
            ) -> Result<reply::SerdeExtension, Error> {
                match extension {
                    $(Extension::$name => ExtensionImpl::<$extension>::extension_request_serialized(
                        &mut self.$backend,
                        &mut context.core,
                        &mut context.backends.$backend,
                        request,
                        resources,
                    ),)*
                }
            }
        }
    };
}

extensions! {
    Pins = 0: AuthExtension, pins;
    Chunked = 1: ChunkedExtension, staging;
    Hpke = 2: HpkeExtension, staging;
    WrapKeyToFile = 3: WrapKeyToFileExtension, staging;
}
