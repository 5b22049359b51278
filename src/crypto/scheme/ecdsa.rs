//! ECDSA signatures between PKCS#11 and JWS, which use `r ‖ s`, and TLS, which uses DER (RFC 3279, section 2.2.3).

use crate::certificate::{Curve, with_leading_zeros};

/// The part of a digest that ECDSA signs: its leftmost bits, as many as the curve's order has (FIPS 186-5, section
/// 6.4.1). A shorter digest gets zeros in front, since PIV cards take only the order's length; the number that is
/// signed stays the same. P-521's order ends within a byte, where this would shift the number, but no TLS digest is
/// longer than it.
pub fn digest_for(curve: Curve, digest: &[u8]) -> Vec<u8> {
    let length = curve.field_length();
    let digest = digest.get(..length).unwrap_or(digest);
    if curve == Curve::P521 {
        return digest.to_owned();
    }
    let mut padded = vec![0; length - digest.len()];
    padded.extend(digest);
    padded
}

/// Evaluates the expression with the crate of the curve, under the given name.
macro_rules! with_crate_of {
    ($curve:expr, $name:ident => $result:expr) => {
        match $curve {
            $crate::certificate::Curve::P256 => {
                use p256 as $name;
                $result
            }
            $crate::certificate::Curve::P384 => {
                use p384 as $name;
                $result
            }
            $crate::certificate::Curve::P521 => {
                use p521 as $name;
                $result
            }
        }
    };
}
pub(crate) use with_crate_of;

/// The DER of a token's signature; `None` if it can't be one on this curve. Tokens that answer in DER already, or leave
/// out leading zeros, are understood.
pub fn to_der(signature: Vec<u8>, curve: Curve) -> Option<Vec<u8>> {
    with_crate_of!(curve, curve_crate => {
        if curve_crate::ecdsa::Signature::from_der(&signature).is_ok() {
            return Some(signature);
        }
        let raw = widen(&signature, curve.field_length())?;
        Some(curve_crate::ecdsa::Signature::from_slice(&raw).ok()?.to_der().as_bytes().to_owned())
    })
}

/// The form `r ‖ s` (RFC 7518, section 3.4) of a signature in DER; `None` if it isn't one on this curve.
pub fn from_der(signature: &[u8], curve: Curve) -> Option<Vec<u8>> {
    with_crate_of!(curve, curve_crate => {
        Some(curve_crate::ecdsa::Signature::from_der(signature).ok()?.to_bytes().to_vec())
    })
}

/// A point's coordinates, each as long as a field element; `None` if it isn't a point of this curve.
pub fn coordinates(point: &[u8], curve: Curve) -> Option<[Vec<u8>; 2]> {
    with_crate_of!(curve, curve_crate => {
        let key = curve_crate::ecdsa::VerifyingKey::from_sec1_bytes(point).ok()?;
        let point = key.to_sec1_point(false);
        Some([point.x()?.to_vec(), point.y()?.to_vec()])
    })
}

/// Both halves with zeros in front, each as long as a field element.
fn widen(signature: &[u8], field: usize) -> Option<Vec<u8>> {
    if signature.is_empty() || !signature.len().is_multiple_of(2) {
        return None;
    }
    let (r, s) = signature.split_at(signature.len() / 2);
    Some([with_leading_zeros(r, field)?, with_leading_zeros(s, field)?].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use messages::printable::hex;

    const CURVES: [Curve; 3] = [Curve::P256, Curve::P384, Curve::P521];

    /// `r ‖ s` with these last bytes and zeros before them.
    fn raw(curve: Curve, r: &[u8], s: &[u8]) -> Vec<u8> {
        let field = curve.field_length();
        let mut raw = vec![0; 2 * field];
        raw[field - r.len()..field].copy_from_slice(r);
        raw[2 * field - s.len()..].copy_from_slice(s);
        raw
    }

    #[test]
    fn integers_are_minimal() {
        for curve in CURVES {
            for (r, s, expected) in [
                (&[1][..], &[2][..], "3006020101020102"),
                // A high bit takes a zero in front: without it the integer would be negative.
                (&[0x80], &[0x7f], "30070202008002017f"),
                (&[0xff, 0x00], &[0x00, 0x80], "3009020300ff0002020080"),
            ] {
                assert_eq!(hex(&to_der(raw(curve, r, s), curve).unwrap()), expected);
            }
        }
    }

    #[test]
    fn the_largest_integers_keep_their_length() {
        for (curve, length) in [(Curve::P256, 70), (Curve::P384, 102), (Curve::P521, 139)] {
            let field = curve.field_length();
            let mut number = vec![0x70; field];
            if curve == Curve::P521 {
                number[0] = 1;
            }
            let der = to_der([number.clone(), number].concat(), curve).unwrap();
            assert_eq!(der.len(), length, "{curve}");
        }
    }

    #[test]
    fn der_and_shortened_halves_are_understood() {
        for curve in CURVES {
            let der = to_der(raw(curve, &[5], &[6]), curve).unwrap();
            assert_eq!(to_der(der.clone(), curve).unwrap(), der);
            assert_eq!(to_der(vec![0, 5, 0, 6], curve).unwrap(), der);
        }
    }

    #[test]
    fn what_was_made_der_is_the_same_again() {
        for curve in CURVES {
            for (r, s) in [(&[1][..], &[2][..]), (&[0x80], &[0x7f]), (&[5; 30], &[6])] {
                let raw = raw(curve, r, s);
                let der = to_der(raw.clone(), curve).unwrap();
                assert_eq!(from_der(&der, curve).unwrap(), raw, "{curve}");
                assert_eq!(from_der(&der[1..], curve), None);
            }
        }
    }

    #[test]
    fn a_point_has_its_coordinates_in_each_encoding() {
        // The generator of P-256 (SEC 2, section 2.4.2).
        let compressed =
            b"\x03\x6b\x17\xd1\xf2\xe1\x2c\x42\x47\xf8\xbc\xe6\xe5\x63\xa4\x40\xf2\x77\
            \x03\x7d\x81\x2d\xeb\x33\xa0\xf4\xa1\x39\x45\xd8\x98\xc2\x96";
        let [x, y] = coordinates(compressed, Curve::P256).unwrap();
        assert_eq!(x, compressed[1..]);
        let expected = "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5";
        assert_eq!(hex(&y), expected);
        let mut whole = [&[4][..], &x, &y].concat();
        assert_eq!(coordinates(&whole, Curve::P256).unwrap(), [x, y]);
        assert_eq!(coordinates(&whole, Curve::P384), None);
        assert_eq!(coordinates(&whole[..64], Curve::P256), None);
        // Beside the curve.
        whole[64] ^= 1;
        assert_eq!(coordinates(&whole, Curve::P256), None);
    }

    #[test]
    fn what_is_no_signature_is_refused() {
        for curve in CURVES {
            let field = curve.field_length();
            for nonsense in [
                Vec::new(),
                vec![1],
                vec![1; 2 * field - 1],
                vec![1; 2 * field + 2],
                vec![0; 2 * field],
                vec![0xff; 2 * field],
                raw(curve, &[1], &[]),
            ] {
                assert_eq!(to_der(nonsense, curve), None, "{curve}");
            }
        }
    }

    #[test]
    fn a_digest_is_as_long_as_the_order() {
        let digest = [7; 64];
        assert_eq!(digest_for(Curve::P256, &digest), [7; 32]);
        assert_eq!(digest_for(Curve::P384, &digest), [7; 48]);
        assert_eq!(digest_for(Curve::P521, &digest), [7; 64]);
        for (curve, zeros) in [(Curve::P256, 12), (Curve::P384, 28), (Curve::P521, 0)] {
            let input = digest_for(curve, &digest[..20]);
            assert_eq!(input.split_at(zeros), (&[0; 28][..zeros], &[7; 20][..]));
        }
    }
}
