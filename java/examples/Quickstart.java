import static java.nio.charset.StandardCharsets.UTF_8;

import io.github.braiddb.Batch;
import io.github.braiddb.Database;
import io.github.braiddb.KeyRange;
import io.github.braiddb.MultiTree;
import io.github.braiddb.Row;
import io.github.braiddb.RowIterator;
import io.github.braiddb.Snapshot;
import io.github.braiddb.Transaction;
import io.github.braiddb.Tree;
import java.nio.file.Files;
import java.nio.file.Path;

/** A shop: stock, orders and an index of them, changed together. Checks its own results. */
public class Quickstart {
    public static void main(String[] arguments) throws Exception {
        Path path = arguments.length > 0 ? Path.of(arguments[0]) : Files.createTempDirectory("shop").resolve("db");
        try (Database database = Database.open(path)) {
            Tree stock = database.tree("stock");
            Tree orders = database.tree("orders");
            MultiTree byCustomer = database.multiTree("orders by customer");

            // Many writes in one commit.
            try (Batch batch = database.batch()) {
                batch.put(stock, bytes("apples"), number(10));
                batch.put(stock, bytes("pears"), number(1));
                batch.commit();
            }

            // Reads and writes in one step. A conflict with another thread repeats it.
            for (String order : new String[] {"1 ann apples", "2 ben pears", "3 ann pears"}) {
                boolean isSold = database.update(tx -> sell(tx, stock, orders, byCustomer, order));
                System.out.println(order + (isSold ? ": sold" : ": sold out"));
            }

            // A snapshot shows the state of one moment, whatever is written meanwhile.
            try (Snapshot snapshot = database.snapshot()) {
                stock.put(bytes("plums"), number(5));
                check(snapshot.tree(stock).count() == 2 && stock.count() == 3);
            }

            // Rows in order; the newest order first.
            try (RowIterator rows = orders.scan(KeyRange.all().reversed().limit(10))) {
                while (rows.hasNext()) {
                    Row row = rows.next();
                    System.out.println("order " + text(row.key()) + ": " + text(row.value()));
                }
            }
            check(orders.count() == 2);
            check(byCustomer.countValues(bytes("ann")) == 1);
            check(stock.asMap().firstKey().length == "apples".length());
            System.out.println("apples left: " + text(stock.get(bytes("apples"))));
        }
    }

    private static boolean sell(Transaction tx, Tree stock, Tree orders, MultiTree byCustomer, String order) {
        String[] parts = order.split(" ");
        byte[] item = bytes(parts[2]);
        int left = Integer.parseInt(text(tx.tree(stock).get(item)));
        if (left == 0) {
            return false;
        }
        tx.tree(stock).put(item, number(left - 1));
        tx.tree(orders).put(bytes(parts[0]), bytes(parts[1] + " " + parts[2]));
        tx.tree(byCustomer).add(bytes(parts[1]), bytes(parts[0]));
        return true;
    }

    private static void check(boolean isRight) {
        if (!isRight) {
            throw new AssertionError("a result is wrong");
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(UTF_8);
    }

    private static byte[] number(int number) {
        return bytes(Integer.toString(number));
    }

    private static String text(byte[] bytes) {
        return new String(bytes, UTF_8);
    }
}
