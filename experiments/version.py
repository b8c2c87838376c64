"""The version, kept in one place."""

VERSION = "1.0.0"
