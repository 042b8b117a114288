"""MirrorMaker 2's configuration files, and Strimzi's, read as our own.

In: a properties file or manifest. Out: our sections, and a sentence on every key that
means something else here, or nothing.
"""
