"""OpenAI's requests and responses: what a body asks for, and how an answer is said."""
