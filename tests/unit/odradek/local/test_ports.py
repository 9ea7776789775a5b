"""Ports that are chosen before anybody listens on them."""

from __future__ import annotations

import socket

import pytest

from odradek.local.ports import ReservedPorts, ephemeral_min

HOST = "127.0.0.1"


def test_a_held_port_is_kept_from_others_and_not_from_its_broker() -> None:
    with ReservedPorts(HOST, 5) as held:
        assert len(set(held.ports)) == 5
        for port in held.ports:
            assert port < ephemeral_min(), "no outgoing connection is given it"
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind((HOST, port))
            with socket.create_server((HOST, port)):  # as brokers do, which reuse addresses
                socket.create_connection((HOST, port)).close()


def test_two_clusters_that_choose_at_once_do_not_meet() -> None:
    with ReservedPorts(HOST, 50) as first, ReservedPorts(HOST, 50) as second:
        assert not set(first.ports) & set(second.ports)


def test_a_host_that_is_not_here_is_said() -> None:
    with pytest.raises(OSError, match=r"203\.0\.113\.1: no 1 free ports"):
        ReservedPorts("203.0.113.1", 1)
