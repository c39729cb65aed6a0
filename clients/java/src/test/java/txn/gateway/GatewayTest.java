package txn.gateway;

import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.io.TempDir;

/** Tests against a gateway process, with ten apples before each test. */
abstract class GatewayTest {
    record Stock(int left) {}

    @TempDir
    static Path folder;

    static Gateway gateway;

    @BeforeAll
    static void startGateway() throws Exception {
        gateway = new Gateway(folder);
    }

    @AfterAll
    static void stopGateway() throws Exception {
        gateway.stop();
    }

    @BeforeEach
    void putApples() {
        gateway.put("stock", "apple", Map.of("left", 10));
    }

    static int left() {
        return gateway.get("stock", "apple").get("left").asInt();
    }
}
