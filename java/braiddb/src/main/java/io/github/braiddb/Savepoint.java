package io.github.braiddb;

/** A state of a transaction to return to: see {@link Transaction#savepoint}. */
public final class Savepoint {
    private final Place place;
    private final long number;

    Savepoint(Place place, long number) {
        this.place = place;
        this.number = number;
    }

    Place place() {
        return place;
    }

    long number() {
        return number;
    }
}
