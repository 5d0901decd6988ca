package spring;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** Spring Boot, on its embedded Tomcat. */
@SpringBootApplication
@RestController
public class SpringServer {
    public static void main(String[] args) {
        SpringApplication.run(SpringServer.class, args);
    }

    @GetMapping("/")
    String fast() {
        return "generation=" + System.getenv("SUPERVISORD_GENERATION") + "\n";
    }

    @GetMapping("/slow")
    String slow() throws InterruptedException {
        Thread.sleep(300);
        return fast();
    }
}
