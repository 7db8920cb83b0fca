"""What people import: `gonogo.compare`, the drop-in assertions, and the hooks of the pytest plug-in."""
