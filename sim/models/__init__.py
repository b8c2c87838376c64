"""What a model is: its layers, what each keeps in the cache, its weights; read from config.json and the catalogue."""
