"""The HTTP server: the APIs of OpenAI, LibreTranslate and text-embeddings-inference, and one of its own."""
