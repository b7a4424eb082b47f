"""Where a network is computed: one interface, an engine for each kind of machine."""
