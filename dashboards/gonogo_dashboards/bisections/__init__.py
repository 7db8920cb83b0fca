"""The pages of bisections: which build changed a test."""
