"""Result records: the readings and scores of one measure on one suite, with their provenance."""
