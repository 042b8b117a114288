"""Real schema registries for the tests, as processes of this machine.

In: a folder, and who may come in. Out: a `RegistryProcess` with its address, which a
test starts, stops and kills. `apicurio` chooses ids itself and knows no modes;
`axonops` knows IMPORT, contexts and soft deletes.
"""
