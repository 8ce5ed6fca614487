"""Tests of captures, which leave the driver as they found it."""

from helpers.tidy import tidy as tidy
