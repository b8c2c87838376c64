"""The version, kept in one place."""

VERSION = "0.1.0"
