"""The forms that create gauges, bisections, waivers, schedules, webhooks and rules."""
