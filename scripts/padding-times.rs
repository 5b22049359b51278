//! Whether the time in which OAEP is taken off shows what is wrong with the padding:
//! `cargo run --release --example padding-times`, which `scripts/bench padding` does.
//!
//! After dudect (Reparaz, Balasch, Verbauwhede: "Dude, is my code constant time?", 2017): blocks with each kind of error
//! in turn by chance, so that what else the machine does meets all alike; the slowest tenth is left out; then
//! Welch's t-test of each kind against the first one. The same is done with a comparison that ends at the first
//! wrong byte, and has to be seen. It fails where the first is seen or the second isn't.

use std::hint::black_box;
use std::io::{self, Write as _};
use std::time::Instant;

use aws_lc_rs::rand;
use crypto::scheme::oaep;
use protocol::hash::Hash;

/// For each kind of error.
const TRIES: usize = 100_000;
/// dudect's: with as many tries no chance leads there, once in a hundred thousand tests.
const LIMIT: f64 = 4.5;

/// RSA-2048 with SHA-256, and AES-256's key in it.
const BLOCK: usize = 256;
const HASH: usize = 32;
const MESSAGE: usize = 32;
/// Where in the data the 1 before the message is.
const SEPARATOR: usize = BLOCK - 1 - HASH - MESSAGE - 1;

const KINDS: [(&str, Fault); 5] = [
    ("the first byte is not 0", Fault::FirstByte),
    ("the label's hash is another one", Fault::Data(0)),
    ("the zeros begin with another byte", Fault::Data(HASH)),
    ("the zeros end with another byte", Fault::Data(SEPARATOR - 1)),
    ("there is no 1 before the message", Fault::Data(SEPARATOR)),
];

#[derive(Clone, Copy)]
enum Fault {
    FirstByte,
    /// At this place in the data, before the mask.
    Data(usize),
}

/// A block that RSA could have left.
struct Faulty {
    block: [u8; BLOCK],
    /// Unmasked, as a comparison sees it.
    data: Vec<u8>,
}

fn main() -> io::Result<()> {
    let mut output = io::stdout();
    writeln!(output, "| what is wrong | t, our comparison | t, one that ends early |")?;
    writeln!(output, "|---|---|---|")?;
    let ours = times(|it| oaep::message(Hash::Sha256, Hash::Sha256, &it.block, MESSAGE).is_some())?;
    let early = times(|it| {
        let is_message = oaep::message(Hash::Sha256, Hash::Sha256, &it.block, MESSAGE).is_some();
        is_message || is_padded_as_far_as_seen(it)
    })?;
    let mut is_seen = [false; 2];
    for (number, (name, _)) in KINDS.iter().enumerate().skip(1) {
        let t = [&ours, &early].map(|times| welch(&times[0], &times[number]));
        is_seen = [0, 1].map(|side| is_seen[side] || t[side].abs() >= LIMIT);
        writeln!(output, "| {name} | {:+.1} | {:+.1} |", t[0], t[1])?;
    }
    match is_seen {
        [false, true] => Ok(()),
        [true, _] => Err(io::Error::other("the time shows what is wrong with the padding")),
        [false, false] => {
            Err(io::Error::other("not even a comparison that ends early is seen: measure again"))
        }
    }
}

/// What must not be done: it ends with the first wrong byte.
fn is_padded_as_far_as_seen(it: &Faulty) -> bool {
    let Some(label) = Hash::Sha256.digest(&[]) else {
        return false;
    };
    let zeros = &it.data[HASH..SEPARATOR];
    it.block[0] == 0
        && it.data.iter().zip(&label).all(|(byte, wanted)| black_box(byte) == wanted)
        && zeros.iter().all(|byte| *black_box(byte) == 0)
        && it.data[SEPARATOR] == 1
}

/// Nanoseconds of each kind, without the slowest tenth of all.
fn times(take_off: impl Fn(&Faulty) -> bool) -> io::Result<Vec<Vec<f64>>> {
    let mut measured = vec![Vec::with_capacity(TRIES); KINDS.len()];
    let mut room = Faulty { block: [0; BLOCK], data: Vec::new() };
    for _ in 0..TRIES * KINDS.len() {
        let mut chance = [0; 2];
        random(&mut chance)?;
        let kind = usize::from(u16::from_le_bytes(chance)) % KINDS.len();
        // At the same place in memory for all.
        fill(&mut room, KINDS[kind].1)?;
        let start = Instant::now();
        let is_message = black_box(take_off(black_box(&room)));
        let time = start.elapsed().as_nanos() as f64;
        if is_message {
            return Err(io::Error::other("wrong padding was taken off"));
        }
        measured[kind].push(time);
    }
    let mut all = measured.concat();
    all.sort_by(f64::total_cmp);
    let slow = all[all.len() * 9 / 10];
    for kind in &mut measured {
        kind.retain(|time| *time < slow);
    }
    Ok(measured)
}

fn fill(room: &mut Faulty, fault: Fault) -> io::Result<()> {
    let mut random_part = [0; HASH + MESSAGE];
    random(&mut random_part)?;
    let (seed, message) = random_part.split_at(HASH);
    room.data = Hash::Sha256.digest(&[]).unwrap_or_default();
    room.data.resize(SEPARATOR, 0);
    room.data.push(1);
    room.data.extend(message);
    if let Fault::Data(place) = fault {
        room.data[place] ^= 0x80;
    }
    let masked = mask(seed, &room.data);
    let seed = mask(&masked, seed);
    let first = u8::from(matches!(fault, Fault::FirstByte));
    room.block = [&[first][..], &seed, &masked]
        .concat()
        .try_into()
        .map_err(|_| io::Error::other("a block of another length"))?;
    Ok(())
}

/// MGF1 (RFC 8017, appendix B.2.1) of the seed, combined with the block.
fn mask(seed: &[u8], block: &[u8]) -> Vec<u8> {
    let mut masked = block.to_vec();
    for (counter, part) in (0_u32..).zip(masked.chunks_mut(HASH)) {
        let digest = Hash::Sha256.digest(&[seed, &counter.to_be_bytes()]);
        for (byte, other) in part.iter_mut().zip(digest.unwrap_or_default()) {
            *byte ^= other;
        }
    }
    masked
}

fn random(bytes: &mut [u8]) -> io::Result<()> {
    rand::fill(bytes).map_err(|_| io::Error::other("no random bytes"))
}

/// Welch's t.
fn welch(one: &[f64], other: &[f64]) -> f64 {
    let moments = |times: &[f64]| {
        let count = times.len() as f64;
        let mean = times.iter().sum::<f64>() / count;
        let squares = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>();
        (mean, squares / (count - 1.0) / count)
    };
    let ((mean, variance), (mean2, variance2)) = (moments(one), moments(other));
    (mean - mean2) / (variance + variance2).sqrt()
}
