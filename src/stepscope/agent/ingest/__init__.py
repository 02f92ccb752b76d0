"""Reads journals into the store: each record exactly once, file after file, also from damaged files."""
