package io.github.braiddb;

import java.time.Duration;

/**
 * A tree as listed.
 *
 * @param name its name
 * @param isMulti true if it keeps many values per key
 * @param codec the names of its codecs in other languages; null for plain bytes
 * @param ttl the time after which its rows expire; null for never
 */
public record TreeInfo(String name, boolean isMulti, String codec, Duration ttl) {}
