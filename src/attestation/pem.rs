//! Files in PEM that have nothing but the blocks that belong there.

use x509_parser::pem::Pem;

use crate::certificate::Certificate;

/// The blocks of a text, of which there has to be one. The error says what is wrong.
pub(crate) fn blocks(pem: &[u8]) -> Result<Vec<Pem>, String> {
    let blocks = Pem::iter_from_buffer(pem).collect::<Result<Vec<_>, _>>();
    let blocks = blocks.map_err(|error| format!("its PEM is damaged ({error})"))?;
    if blocks.is_empty() {
        return Err("it has no CERTIFICATE in PEM".to_owned());
    }
    Ok(blocks)
}

/// The certificate in a block. The error says what is wrong.
pub(crate) fn certificate_of(block: Pem) -> Result<Certificate, String> {
    match block.label.as_str() {
        "CERTIFICATE" => Certificate::from_der(&block.contents, "a certificate in it")
            .map_err(|refusal| refusal.to_string()),
        _ => Err("something else than a CERTIFICATE stands in it".to_owned()),
    }
}

/// The certificates of a text that has nothing else. The error says what is wrong.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<Certificate>, String> {
    blocks(pem)?.into_iter().map(certificate_of).collect()
}
