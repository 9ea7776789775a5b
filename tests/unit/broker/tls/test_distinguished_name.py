"""Subjects of certificates as text. The expected texts are those of Java 17's X500Principal.getName."""

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from odradek.broker.tls.distinguished_name import rfc2253_name, subject_name
from tests.support.certificates import issue

JAVA = {
    "3041310b300906035504061302444531133011060355040a0c0a41636d652c20496e632e311d301b06035504030c1462726f6b65722d312e65"
    "78616d706c652e636f6d": r"CN=broker-1.example.com,O=Acme\, Inc.,C=DE",
    "30173115301306035504030c0c206c65616423747261696c20": r"CN=\ lead\#trail" + "\\ ",
    "30123110300e06035504030c07202074776f2020": "CN=\\ \\ two\\ \\ ",
    "300c310a300806035504030c0120": "CN=\\ ",
    "3020311e301c06035504030c15612c622b6322645c653c663e673b683d69236a2f6b": r"CN=a\,b\+c\"d\\e\<f\>g\;h\=i\#j/k",
    "301e311c301a06035504030c134dc3bc6c6c657220e697a5e69cac20f09f9880": "CN=Müller 日本 😀",
    "30223114301206092a864886f70d01090116056140622e63310a30080603550403130178": (
        "CN=x,1.2.840.113549.1.9.1=#16056140622e63"
    ),
    "303331133011060a0992268993f22c64011916036f7267311c300806035504030c01793010060a0992268993f22c6401010c027531": (
        "CN=y+UID=u1,DC=org"
    ),
    "3052310f300d06035504080c0642617965726e310a300806035504070c014d310c300a06035504090c03532031310b3009060355040c0c0244"
    "72310b3009060355040513023132310b3009060355040b0c026f75": (
        "OU=ou,2.5.4.5=#13023132,2.5.4.12=#0c024472,STREET=S 1,L=M,ST=Bayern"
    ),
    "3010310e300c06035504030c056e756c0078": r"CN=nul\00x",
    "3010310e300c06035504031405743631c3a9": "CN=t61é",
    "300e310c300a06035504031203313233": "CN=#1203313233",
    "300b3109300706035504030c00": "CN=",
    "3000": "",
}


@pytest.mark.parametrize(("encoded", "text"), JAVA.items())
def test_name_is_the_text_that_java_prints(encoded: str, text: str) -> None:
    assert rfc2253_name(bytes.fromhex(encoded)) == text


@pytest.mark.parametrize("encoded", JAVA)
def test_truncated_name_is_refused(encoded: str) -> None:
    name = bytes.fromhex(encoded)
    for size in range(len(name)):
        with pytest.raises(ValueError, match="malformed DER"):
            rfc2253_name(name[:size])


def test_value_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        rfc2253_name(bytes.fromhex("30133111300f06035504031e080062006d007000e9"))


def test_subject_of_a_certificate_is_read_and_not_its_issuer() -> None:
    issuer = issue("authority", ca=True)
    certificate = issue("alice", issuer).certificate.public_bytes(Encoding.DER)
    assert subject_name(certificate) == "CN=alice"


def test_object_id_that_is_too_long_is_refused() -> None:
    object_id = b"\x06\x82\x01\x01" + b"\x55" * 257
    value = b"\x0c\x01x"
    attribute = b"\x30\x82" + (len(object_id) + len(value)).to_bytes(2) + object_id + value
    relative = b"\x31\x82" + len(attribute).to_bytes(2) + attribute
    with pytest.raises(ValueError, match="more than 256 bytes"):
        rfc2253_name(b"\x30\x82" + len(relative).to_bytes(2) + relative)


@pytest.mark.parametrize("encoded", ["3000", "30023000", "3004300231003000"])
def test_certificate_without_a_subject_is_refused(encoded: str) -> None:
    with pytest.raises(ValueError, match="malformed DER"):
        subject_name(bytes.fromhex(encoded))
