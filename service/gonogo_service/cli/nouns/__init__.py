"""Groups of commands, one per noun of the API: `gonogo NOUN list|show|create|change|remove`."""
