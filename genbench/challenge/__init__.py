"""The challenge: does a measure know networks that nobody has seen as well, and does it look for evidence?"""
