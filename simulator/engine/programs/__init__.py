"""Programs: all turns of one agent, held at the gateway where a policy says so."""
