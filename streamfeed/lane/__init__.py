"""Lane: read, shuffle, encode, mix and pack; rows and the state behind each of them."""
