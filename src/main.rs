//! Start the program and end with its exit code.

fn main() {}
