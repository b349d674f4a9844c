"""The Volcano GPU share plugin's protocols: memory of one card, or whole cards, handed over by card index."""
