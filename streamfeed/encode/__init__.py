"""Encode: tokenizers, and the engines that turn texts into ids."""
