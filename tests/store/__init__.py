"""The suite that every store passes, and the tests of the embedded one."""
