//! What the tunnel process serves, as `status` shows it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// What `status --json` prints; `null` there if no process runs.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusDocument {
    /// The number of the tunnel process.
    pub pid: u32,
    pub version: String,
    pub keys: Vec<KeyStatus>,
    pub clusters: Vec<ClusterStatus>,
}

/// A key that is open.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyStatus {
    /// The certificate's.
    pub subject: String,
    /// What selects it in the configuration.
    pub configuration: Vec<(String, String)>,
    pub connections: usize,
    /// Who uses it.
    pub callers: Vec<CallerStatus>,
    /// Until when it stays open, in words.
    pub until: String,
}

/// A program that was given a credential for the key.
#[derive(Deserialize, Serialize)]
pub struct CallerStatus {
    pub pid: i32,
    pub name: String,
}

/// A cluster that is served.
#[derive(Deserialize, Serialize)]
pub struct ClusterStatus {
    pub name: String,
    pub server: String,
    /// Where it is served.
    pub address: String,
}

impl ClusterStatus {
    pub fn is_at(&self, address: SocketAddr) -> bool {
        self.address == address.to_string()
    }
}
