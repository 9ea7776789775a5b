"""Reservation of ports before the brokers listen on them."""

from __future__ import annotations

import socket

import pytest

from odradek.local.ports import ReservedPorts, ephemeral_min

HOST = "127.0.0.1"


def test_reserved_port_is_refused_to_other_processes_and_available_to_its_broker() -> None:
    with ReservedPorts(HOST, 5) as reserved:
        assert len(set(reserved.ports)) == 5
        for port in reserved.ports:
            assert port < ephemeral_min(), "the kernel must not use a reserved port for an outgoing connection"
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind((HOST, port))
            with socket.create_server((HOST, port)):  # it sets SO_REUSEADDR, as a broker does
                socket.create_connection((HOST, port)).close()


def test_concurrent_reservations_have_no_port_in_common() -> None:
    with ReservedPorts(HOST, 50) as first, ReservedPorts(HOST, 50) as second:
        assert not set(first.ports) & set(second.ports)


def test_address_of_another_host_is_an_error() -> None:
    with pytest.raises(OSError, match=r"203\.0\.113\.1: no 1 free ports"):
        ReservedPorts("203.0.113.1", 1)
