"""Erasure of a person from histories: fields are encrypted under the person's key, and the key is destroyed.

`keys.py` is the store of keys, `cipher.py` encrypts and decrypts with them, `erasing.py` destroys one and clears up
behind it. What was never encrypted is taken out of files instead (`tidelog excise`).
"""
