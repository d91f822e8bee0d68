"""Many questions: what binds, what each thing would buy, and which hardware an answer needs."""
