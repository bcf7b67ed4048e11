package io.github.braiddb;

import java.time.Instant;

/**
 * A backup.
 *
 * @param id its number; later backups have higher ones
 * @param sequence the last commit in it
 * @param files its files
 * @param bytes bytes of its files
 * @param filesCopied files that no earlier backup had
 * @param bytesCopied bytes of these
 * @param taken when it was taken
 */
public record BackupInfo(
        long id, long sequence, long files, long bytes, long filesCopied, long bytesCopied, Instant taken) {
    static BackupInfo decode(Decoder decoder) {
        return new BackupInfo(
                decoder.number(), decoder.number(), decoder.number(), decoder.number(), decoder.number(),
                decoder.number(), decoder.time());
    }
}
