/**
 * State stores of Kafka Streams in BraidDB.
 *
 * <p>Set {@code dsl.store.suppliers.class} to
 * {@link io.github.braiddb.kafka.streams.BraidDslStoreSuppliers}, and the stores of the DSL are in
 * BraidDB. {@link io.github.braiddb.kafka.streams.BraidStores} makes single stores.
 */
package io.github.braiddb.kafka.streams;
