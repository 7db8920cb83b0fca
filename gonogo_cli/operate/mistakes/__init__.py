"""The usual mistakes of an installation, each with its remedy: `gonogo doctor --deep`."""
